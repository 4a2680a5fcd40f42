"""The common parts of this package's commands: help, and the note about options without meaning."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from types import ModuleType

from nodectl.client.command import BadUsage, Failed, GlobalOptions, Program
from nodectl.client.render.terminal import put
from nodectl.client.waiting import say
from nodectl.model.number import whole
from nodectl.slurm.commands.option_words import Given, Option, help_of, read, settings_of, without_meaning

HELP = (
    Option("help", "", text="print this"),
    Option("usage", "", text="print this"),
    Option("verbose", "v", text="say more, also which options have no meaning here"),
    Option("version", "V", text="print the version"),
)
_OF_HELP = ("help", "usage", "verbose", "version")
_LONGEST_PAUSE = 1_000_000  # seconds


def read_line(words: Sequence[str], table: Sequence[Option], usage: str) -> Given:
    """Return the options and words; for --help print the help and exit. Raises BadUsage."""
    given = read(words, table)
    if "help" in given or "usage" in given:
        put(help_of(f"{Program.name} {usage}", table, [option for option in table if option.long in _OF_HELP]))
        raise SystemExit(0)
    if "verbose" in given and (names := without_meaning(given, table)):
        say(f"without meaning on one machine: {', '.join(f'--{name}' for name in names)}")
    return given


def tell_settings(given: Given, table: Sequence[Option]) -> None:
    """Print the settings, with which squeue and sinfo begin if -v is given."""
    if "verbose" in given:
        line = "-" * 29
        put([line, *settings_of(given, table), line, ""])


def again_and_again(given: Given, show: Callable[[], None]) -> int:
    """Call `show` once, or with --iterate again after each pause. Return the exit status. Raises Failed."""
    pause = whole(given.value("iterate", "0"), _LONGEST_PAUSE)
    if pause is None:
        raise Failed(f"Invalid interval: {given.value('iterate')[:20]}")
    show()
    while pause:
        print(flush=True)
        time.sleep(pause)
        show()
    return 0


def hand_on(command: ModuleType, settings: GlobalOptions, words: Sequence[str]) -> int:
    """Run nodectl's own command `nodectl.cli.X` with `words`. Return the exit status. Raises BadUsage."""
    parser = argparse.ArgumentParser(prog=Program.name, exit_on_error=False)
    command.add_arguments(parser)
    try:
        arguments = parser.parse_args(words)
    except argparse.ArgumentError as error:
        raise BadUsage(str(error), 1) from None
    arguments.settings = settings
    return int(command.main(arguments))
