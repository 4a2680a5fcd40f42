"""The allowed values of configuration keys: conversion from TOML's plain values, and words for errors.

Pure functions of values; imported where `nodectl.model.config` is. Values for the keys of only one subject are in its
`keys.py`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_PERCENT = 1_000_000


class Parser:
    """The parser of a key's value.

    `allowed` describes the allowed values. `read` turns TOML's value into ours, or raises `ValueError` with the reason,
    in words that follow the key's name; its result's type is the key's.
    """

    __slots__ = ("allowed", "read")

    def __init__(self, allowed: str, read: Callable[[object], object]) -> None:
        self.allowed = allowed
        self.read = read


def string(value: object) -> str:
    """Return a string. Raises ValueError, as all functions here."""
    if not isinstance(value, str):
        raise ValueError(f"is {kind_of(value)}")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    return value


def absolute(value: object) -> str:
    """Return an absolute path without a trailing slash."""
    path = string(value)
    if not path.startswith("/"):
        raise ValueError(f"is {path!r}, a relative path")
    return path if path == "/" else path.rstrip("/")


def _optional(value: object) -> str | None:
    return None if value == "" else absolute(value)


def split_words(value: object, separator: str) -> list[str]:
    """Return the words of a list of strings, or of a string with a separator."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(separator) if word.strip()]
    if isinstance(value, list):
        return [string(word) for word in value]
    raise ValueError(f"is {kind_of(value)}")


def name_of(value: object) -> str:
    """Return a name fit for a file."""
    name = string(value)
    if not is_plain(name, "_-.") or name.startswith("."):
        raise ValueError(f"is {name!r}")
    return name


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"is {kind_of(value)}")
    return value


def is_plain(word: str, others: str) -> bool:
    """Return True for ASCII letters and digits and the extra characters of the second argument."""
    return bool(word) and all(c.isascii() and (c.isalnum() or c in others) for c in word)


def kind_of(value: object) -> str:
    """Return the kind of a TOML value in words."""
    names = {bool: "a truth value", int: "a whole number", float: "a decimal number"}
    names |= {str: "a string", list: "a list", dict: "a section"}
    return names.get(type(value), "a date or time")


# Units in which a number may be written as on the command line, with an example.
_WRITTEN = {"seconds": '"1h30m" or "1-0"', "MiB": '"2G"', "bytes": '"2G"'}


def amount(text: str, unit: str) -> object:
    """Return the number for a text such as 1h30m, or the text itself where it is none."""
    from nodectl.model import number as numbers  # few files have such texts

    try:
        if unit == "seconds":  # without a unit it would mean minutes on the command line, and seconds here
            return text if text.isdecimal() else numbers.seconds(text)
        return numbers.mebibytes(text) << (20 if unit == "bytes" else 0) if text[-1:].isalpha() else text
    except ValueError:
        return text


def number(least: int, most: int, unit: str) -> Parser:
    """Return a parser of a whole number between two bounds, both allowed; for some units also of a text."""

    def read(value: object) -> int:
        if isinstance(value, str) and unit in _WRITTEN:
            found = amount(value, unit)
            if isinstance(found, str):
                raise ValueError("is a string" if value.isdecimal() else f"is {value[:40]!r}")
            value = found
        # TOML's true is a Python int too.
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"is {kind_of(value)}")
        if not least <= value <= most:
            raise ValueError(f"is {value}")
        return value

    also = f", or as on the command line: {_WRITTEN[unit]}" if unit in _WRITTEN else ""
    return Parser(f"a number of {unit} from {least} to {most}{also}", read)


def words(*allowed: str) -> Parser:
    """Return a parser of some of the words, each at most once, in any case; the result has the given spelling."""
    known = {word.lower(): word for word in allowed}

    def read(value: object) -> tuple[str, ...]:
        given = [word.lower() for word in split_words(value, ",")]
        for word in given:
            if word not in known:
                raise ValueError(f"has {word!r}")
        return tuple(dict.fromkeys(known[word] for word in given))

    return Parser(f"words of {', '.join(allowed)}, as a list or with ',' between them", read)


def one_of(*allowed: str) -> Parser:
    """Return a parser of one of the words."""

    def read(value: object) -> str:
        word = string(value)
        if word not in allowed:
            raise ValueError(f"is {word!r}")
        return word

    return Parser(f"one of {', '.join(allowed)}", read)


def _percent(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"is {kind_of(value)}")
    if not 0 <= value <= _MOST_PERCENT:  # and no nan
        raise ValueError(f"is {value}")
    return value


def lines_of(value: object) -> tuple[str, ...]:
    """Return the lines of a list of strings, or a single line; skip blank lines."""
    lines = value if isinstance(value, list) else [value]
    return tuple(line.strip() for line in map(string, lines) if line.strip())


PATH = Parser("an absolute path", absolute)
SCRIPT = Parser('the absolute path of a program, or "" for none', _optional)
NAME = Parser("letters, digits, '-', '_' and '.', no '.' in front", name_of)
SWITCH = Parser("true or false", _switch)
SECONDS = number(0, 1_000_000, "seconds")
PERCENT = Parser(f"a number of percent from 0 to {_MOST_PERCENT}", _percent)
LINES = Parser("lines, as a list", lines_of)
