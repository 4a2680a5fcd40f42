"""An argparse parser in the style of `nodectl run`: a line on the mistake, and a line on where help is."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from nodectl.client.nearest import hint
from nodectl.model.exit_statuses import USAGE, ExitStatus

# argparse's words
_UNKNOWN = "unrecognized arguments: "
_NO_JOB = "the following arguments are required: JOB"


class CommandParser(argparse.ArgumentParser):
    """The parser of a command and of the command's subcommands."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": _Formatter, **named})

    def error(self, message: str) -> NoReturn:
        """Print the message and exit."""
        if message.startswith(_UNKNOWN):
            message = self._about_unknown(message.removeprefix(_UNKNOWN))
        elif message.startswith(_NO_JOB):
            message = f"{message}; `last` is your newest job"
        sys.stdout.flush()
        sys.stderr.write(f"{self.prog}: error: {message}\nTry '{self.prog} --help' for more information.\n")
        sys.exit(int(USAGE.status))

    def _about_unknown(self, words: str) -> str:
        options = [word.partition("=")[0] for word in words.split() if word.startswith("-")]
        if not options:
            word = words.split(maxsplit=1)[0]
            advice = f"; jobs are named by -j: {self.prog} -j {word}" if "-j" in _options(self) else ""
            return f"one word too many: {words}{advice}"
        return f"unrecognized option '{options[0]}'{hint(options[0], _options(self))}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += hint(str(value), map(str, action.choices or ()))
            raise


class _Formatter(argparse.HelpFormatter):
    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a command's subcommands, by the first name of each."""
    found: dict[argparse.ArgumentParser, str] = {}
    for action in parser._actions:  # argparse has no other way to them
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                found.setdefault(one, name)
    return {name: one for one, name in found.items()}


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """Return all option strings of the command and the subcommands."""
    found = {name for action in parser._actions for name in action.option_strings}
    return found.union(*map(_options, subcommands(parser).values()))


def status_lines(statuses: Iterable[ExitStatus]) -> str:
    """Return the exit statuses in a single sentence, for the end of a help text."""
    return "Exit status: " + "; ".join(f"{status} {meaning}" for status, meaning in statuses) + "."
