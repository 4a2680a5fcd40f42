"""What the commands of this package have in common: their help, and what they say of options without meaning."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.client.command import Program
from nodectl.client.waiting import say
from nodectl.render.terminal import put
from nodectl.slurm_commands.option_words import Given, Option, help_of, read, settings_of, without_meaning

HELP = (
    Option("help", "", text="print this"),
    Option("usage", "", text="print this"),
    Option("verbose", "v", text="say more, also which options have no meaning here"),
    Option("version", "V", text="print the version"),
)
_OF_HELP = ("help", "usage", "verbose", "version")


def read_line(words: Sequence[str], table: Sequence[Option], usage: str) -> Given | None:
    """The options and words; None where help was asked for and is printed. Raises BadUsage."""
    given = read(words, table)
    if "help" in given or "usage" in given:
        put(help_of(f"{Program.name} {usage}", table, [option for option in table if option.long in _OF_HELP]))
        return None
    if "verbose" in given and (names := without_meaning(given, table)):
        say(f"without meaning on one machine: {', '.join(f'--{name}' for name in names)}")
    return given


def tell_settings(given: Given, table: Sequence[Option]) -> None:
    """What squeue and sinfo say with -v before anything else."""
    if "verbose" in given:
        line = "-" * 29
        put([line, *settings_of(given, table), line, ""])
