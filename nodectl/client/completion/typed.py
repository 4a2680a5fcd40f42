"""What a shell hands over of a command line: words before the cursor's, and that one as far as it is typed. Pure."""

import shlex
from collections.abc import Sequence

_CURSOR = "\1"  # nobody types it
_HARMLESS = frozenset("-_=:,.+@%/")


def split(line: str) -> list[str]:
    """The words of the text before the cursor, the command's name first; the last one is the cursor's, perhaps empty.
    A quote may be open.
    """
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(f"{line}{_CURSOR}{closing}")
        except ValueError:
            continue
        return [word.removesuffix(_CURSOR) for word in words]
    return [""]


def broken_off(word: str, breaks: str) -> int:
    """How much of the cursor's word bash takes for words before it: up to the last of these letters."""
    return max((word.rfind(letter) + 1 for letter in breaks if letter in word), default=0)


def is_harmless(word: str) -> bool:
    """Whether a shell takes it for nothing but a word: some names are others' choice, and end on a command line."""
    return all(letter.isalnum() or letter in _HARMLESS for letter in word)


def fitting(candidates: Sequence[tuple[str, str]], partial: str, *, listed: bool) -> list[tuple[str, str]]:
    """The candidates that go on from what is typed, whole; of a list what goes on behind its last comma."""
    done, comma, last = partial.rpartition(",") if listed else ("", "", partial)
    before = done.split(",")
    return [
        (f"{done}{comma}{word}", meaning)
        for word, meaning in candidates
        if word.startswith(last) and not (comma and word in before)
    ]
