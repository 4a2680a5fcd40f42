"""Parser of command lines with the rules of getopt_long(3). Pure.

Options may stand behind other words; long names may be abbreviated as long as they are unambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nodectl.client.command import BadUsage

NO_ARGUMENT, ARGUMENT, MAYBE_ARGUMENT = 0, 1, 2
_WRONG = 1  # the exit status of all commands except srun, sbatch and salloc


class Option(NamedTuple):
    """An option. `text` is the line of help; "" for an option without meaning on a single machine.

    `same`: the option of which this is a second name.
    """

    long: str
    short: str = ""
    argument: int = NO_ARGUMENT
    text: str = ""
    same: str = ""

    @property
    def name(self) -> str:
        """The key of the option's values in `Given`."""
        return self.same or self.long


class Given:
    """The parsed words: each option's values in order, "" for an option without a value; the words besides options."""

    def __init__(self) -> None:
        self.options: dict[str, list[str]] = {}
        self.words: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self.options

    def value(self, name: str, otherwise: str = "") -> str:
        """Return the last value of an option."""
        return self.options[name][-1] if name in self.options else otherwise

    def listed(self, *names: str) -> list[str]:
        """Return the words between commas in all values of the options."""
        values = [value for name in names for value in self.options.get(name, ())]
        return [word.strip() for value in values for word in value.split(",") if word.strip()]


def read(words: Sequence[str], table: Sequence[Option]) -> Given:
    """Parse the words. Raises BadUsage."""
    given, rest = Given(), list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            given.words += rest
            break
        if word.startswith("--"):
            _long(word[2:], rest, table, given)
        elif word.startswith("-") and word != "-":
            _short(word[1:], rest, table, given)
        else:
            given.words.append(word)
    return given


def _long(word: str, rest: list[str], table: Sequence[Option], given: Given) -> None:
    name, equals, value = word.partition("=")
    found = [option for option in table if option.long == name] or [one for one in table if one.long.startswith(name)]
    if not found:
        raise BadUsage(f"unrecognized option '--{name}'", _WRONG)
    if len({option.name for option in found}) > 1:
        names = " ".join(f"--{option.long}" for option in found)
        raise BadUsage(f"option '--{name}' is ambiguous; possibilities: {names}", _WRONG)
    option = found[0]
    if equals and option.argument == NO_ARGUMENT:
        raise BadUsage(f"option '--{option.long}' doesn't allow an argument", _WRONG)
    if not equals and option.argument == ARGUMENT:
        if not rest:
            raise BadUsage(f"option '--{option.long}' requires an argument", _WRONG)
        value = rest.pop(0)
    given.options.setdefault(option.name, []).append(value)


def _short(letters: str, rest: list[str], table: Sequence[Option], given: Given) -> None:
    while letters:
        option = next((one for one in table if one.short == letters[0]), None)
        if option is None:
            raise BadUsage(f"invalid option -- '{letters[0]}'", _WRONG)
        letters, value = letters[1:], ""
        if option.argument != NO_ARGUMENT:
            if not letters and option.argument == ARGUMENT and not rest:
                raise BadUsage(f"option requires an argument -- '{option.short}'", _WRONG)
            value = letters or (rest.pop(0) if option.argument == ARGUMENT else "")
            letters = ""
        given.options.setdefault(option.name, []).append(value)


def without_meaning(given: Given, table: Sequence[Option]) -> list[str]:
    """Return the given options without meaning on a single machine."""
    return [option.long for option in table if option.long in given and not option.text and not option.same]


def help_of(usage: str, table: Sequence[Option], of_help: Sequence[Option]) -> list[str]:
    """Return the lines of --help; `of_help`: the options of `table` for the end of the help."""
    told = [option for option in table if option.text and option not in of_help]
    lines = [f"Usage: {usage}", "", *map(_line, told), "", "Help options:", *map(_line, of_help)]
    silent = [f"--{option.long}" for option in table if not option.text and not option.same]
    if silent:
        lines += ["", f"Taken, and without meaning on one machine: {' '.join(silent)}"]
    return lines


def _line(option: Option) -> str:
    argument = {NO_ARGUMENT: "", ARGUMENT: "=VALUE", MAYBE_ARGUMENT: "[=VALUE]"}[option.argument]
    short = f"-{option.short}, " if option.short else "    "
    return f"  {short + '--' + option.long + argument:28} {option.text}"


def settings_of(given: Given, table: Sequence[Option]) -> list[str]:
    """Return a line for each option, with the last value, or how often the option was given."""
    lines = []
    for option in table:
        if not option.same:
            values = given.options.get(option.long, [])
            lines.append(f"{option.long:14} = {values[-1] if values and values[-1] else len(values)}")
    return lines
