"""`nodectl select try`: play a workload against a select plugin, or compare two plugins, and report the results."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from nodectl.client.command import Failed, complain
from nodectl.client.configuration import configured
from nodectl.client.render.terminal import put, write_document
from nodectl.lab.progress_line import ProgressLine
from nodectl.lab.simulation import described, gantt, generator, picture, report, stage, submission, workload_file
from nodectl.lab.simulation.story import Played
from nodectl.lab.simulation.watch import line_of
from nodectl.lab.simulation.workload import BadWorkload, Workload
from nodectl.model.config import Config, ConfigError
from nodectl.placement.binding.node import settings_of
from nodectl.plugin_host.loader import PluginRefused
from nodectl.scheduler.policy import Policy
from nodectl.selection.answers import SelectionFailed
from nodectl.selection.slurmctld import parameters_of
from nodectl.service.config_file.all_keys import KEYS

MOST_PLUGINS = 2
_BROKEN, _WRONG = 1, 2


def main(given: argparse.Namespace, options: argparse.ArgumentParser) -> int:
    """Play the workload, report and draw the results. Return the exit status.

    The status is 0, 1 if a rule was broken or a plugin cannot be used, 2 for wrong usage.
    """
    options.add_argument("words", nargs="*")
    known = {name: value for name, value in vars(given).items() if name != "words"}
    arguments = options.parse_intermixed_args(given.words, argparse.Namespace(**known))
    plugins = [word for word in arguments.words if "=" not in word]
    settings = [word for word in arguments.words if "=" in word]
    try:
        if not 1 <= len(plugins) <= MOST_PLUGINS:
            return _wrong(f"one plugin, or two to compare, and not {len(plugins)}: a type (select/linear) or a file")
        if settings and not all(word.partition("=")[0].isidentifier() for word in settings):
            return _wrong(f"{settings[0]!r} is no key=value of the configuration")
        config = _config(arguments.settings.config, settings)
        workload = _workload(arguments)
        played = [_play(name, workload, config, arguments) for name in plugins]
    except (BadWorkload, ValueError, ConfigError) as error:
        return _wrong(str(error))
    except OSError as error:
        return _wrong(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (PluginRefused, SelectionFailed) as error:
        complain(str(error))
        return _BROKEN
    _distinct(played, plugins)
    found = [report.figures(one) for one in played]
    if arguments.svg:
        try:
            write_document(arguments.svg, gantt.draw([picture.chart(one) for one in played]))
        except OSError as error:
            return _wrong(f"{arguments.svg}: {error.strerror}")
    if arguments.json:
        plays = [one | ({"stories": report.stories(play)} if arguments.jobs else {}) for one, play in
                 zip(found, played, strict=True)]  # fmt: skip
        print(json.dumps({"plays": plays}, indent=None if arguments.calls else 2))
    elif arguments.svg != "-":
        put(report.text(found))
        if arguments.jobs:
            for one in played:
                put(["", *report.job_lines(one)])
    return _BROKEN if any(one.violations for one in played) else 0


def _play(name: str, workload: Workload, config: Config, arguments: argparse.Namespace) -> Played:
    """Play the workload against a plugin on a new table of nodes."""
    nodes = described.nodes_of(arguments.nodes)
    plain = name.rpartition("/")[2].removesuffix(".py")
    own = Config({key.name: getattr(config, key.name) for key in KEYS} | {"select_type": f"select/{plain}"})
    setting = stage.Setting(
        Policy.of(config),
        parameters_of(own, settings_of(config, nodes[0].config)),
        config.plugin_dir,
        float(config.spank_hook_timeout),
        arguments.epilog,
    )
    told = None
    if arguments.calls:
        told = _tell_json if arguments.json else _tell
    with ProgressLine() as line:

        def say(text: str) -> None:
            line.hide()
            print(f"nodectl: {text}", file=sys.stderr)

        def ended(jobs: int) -> None:
            if told is None:  # the calls show the progress
                line.tell(f"{name}: {jobs} of {len(workload.jobs)} jobs have ended")

        return stage.play(name, nodes, workload, setting, told=told, say=say, ended=ended)


def _tell(call: dict[str, Any]) -> None:
    put([line_of(call)])


def _tell_json(call: dict[str, Any]) -> None:
    print(json.dumps(call))


def _workload(arguments: argparse.Namespace) -> Workload:
    if (arguments.workload is None) == (arguments.generate is None):
        raise BadWorkload("give --workload FILE or --generate RECIPE, one of them")
    if arguments.workload is not None:
        return workload_file.read(arguments.workload)
    recipe = generator.recipe_of(arguments.generate)
    machine = submission.machine_of(described.nodes_of(arguments.nodes))
    return generator.generate(recipe, machine, arguments.seed)


def _config(path: str | None, words: list[str]) -> Config:
    """Return the configuration with the keys of the command line; a key repeated there makes a list."""
    try:
        config = configured(path)
    except Failed as failed:
        raise ConfigError(str(failed)) from None
    keys = {key.name: key for key in KEYS}
    values: dict[str, object] = {name: getattr(config, name) for name in keys}
    for name, value in _given(words).items():
        if name not in keys:
            raise ConfigError(f"{name}: no key of the configuration; `nodectl config --explain` has all")
        try:
            values[name] = keys[name].parser.read(value)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}; allowed: {keys[name].parser.allowed}") from None
    return Config(values)


def _given(words: list[str]) -> dict[str, object]:
    """Return the key=value words as TOML values: numbers, true and false, and texts without quotation marks."""
    given: dict[str, object] = {}
    for word in words:
        name, _, text = word.partition("=")
        value: object = {"true": True, "false": False}.get(text, int(text) if text.isdecimal() else text)
        if name in given:
            before = given[name]
            given[name] = [*(before if isinstance(before, list) else [before]), value]
        else:
            given[name] = value
    return given


def _distinct(played: list[Played], names: list[str]) -> None:
    """Name two plugins of the same type by the file of each."""
    if len({one.plugin for one in played}) < len(played):
        for place, (one, name) in enumerate(zip(played, names, strict=True), 1):
            one.plugin = name if len(set(names)) == len(names) else f"{name} ({place})"


def _wrong(text: str) -> int:
    complain(text)
    return _WRONG
