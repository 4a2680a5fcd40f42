"""The command line of `nodectl spank try`: a plugin with arguments and options, and a step as the plugin's trial."""

import argparse

from nodectl.client.command import Failed
from nodectl.client.run_options import ARGUMENT, OPTIONS, layout_options

_USAGE = 2
_BUILT_IN = {option.long: option for option in (*OPTIONS, *layout_options())}
# Options of `nodectl run` that are no part of a probe run.
_NOT_HERE = {
    "uid": "try's own --user says whose the step is",
    "gid": "try's own --user says whose the step is",
    "jobid": "a probe run has a job of its own",
    "help": "`nodectl spank try --help` and `nodectl run --help` tell",
}


class CommandLine:
    """The words of the command line: plugin, arguments, options of `nodectl run`, options of the plugin, program.

    Raises Failed.
    """

    def __init__(self, arguments: argparse.Namespace, own: argparse.ArgumentParser) -> None:
        words = list(arguments.words)
        end = words.index("--") if "--" in words else len(words)
        self.program: list[str] = words[end + 1 :] or ["true"]
        _, others = own.parse_known_args(words[:end], arguments)
        options = [word for word in others if word.startswith("--")]
        self.run_options = [word for word in options if _name(word) in _BUILT_IN]
        self.options = [word for word in options if _name(word) not in _BUILT_IN]
        self.plugin, *self.arguments = [word for word in others if not word.startswith("--")] or [""]
        if not self.plugin:
            raise Failed("no plugin is named: nodectl spank try PLUGIN", _USAGE)
        for word in self.run_options:
            name = _name(word)
            if name in _NOT_HERE:
                raise Failed(f"--{name}: {_NOT_HERE[name]}", _USAGE)
            if _BUILT_IN[name].has_arg == ARGUMENT and "=" not in word:
                raise Failed(f"--{name} needs its argument behind a '=', as in --{name}=VALUE", _USAGE)


def _name(word: str) -> str:
    """Return the name of an option --name=value."""
    return word[2:].partition("=")[0]
