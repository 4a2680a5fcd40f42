"""Parsing of the command line handed over by a shell: the words before the cursor, and the word at the cursor. Pure."""

import shlex
from collections.abc import Sequence

_CURSOR = "\1"  # a character which users do not type
_HARMLESS = frozenset("-_=:,.+@%/")


def split(line: str) -> list[str]:
    """Return the words of the text before the cursor, with the command's name first.

    The last word is the cursor's, perhaps empty. A quote may be open.
    """
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(f"{line}{_CURSOR}{closing}")
        except ValueError:
            continue
        return [word.removesuffix(_CURSOR) for word in words]
    return [""]


def broken_off(word: str, breaks: str) -> int:
    """Return the length of the part of the cursor's word which bash takes for earlier words.

    The part ends with the last letter of `breaks`.
    """
    return max((word.rfind(letter) + 1 for letter in breaks if letter in word), default=0)


def is_harmless(word: str) -> bool:
    """Return True if shells take the text for a plain word.

    Other users choose some of the names, which end on a command line.
    """
    return all(letter.isalnum() or letter in _HARMLESS for letter in word)


def fitting(candidates: Sequence[tuple[str, str]], partial: str, *, listed: bool) -> list[tuple[str, str]]:
    """Return the candidates which begin with the typed text; in a list, with the text after the last comma."""
    done, comma, last = partial.rpartition(",") if listed else ("", "", partial)
    before = done.split(",")
    return [
        (f"{done}{comma}{word}", meaning)
        for word, meaning in candidates
        if word.startswith(last) and not (comma and word in before)
    ]
