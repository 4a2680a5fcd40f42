"""Names of nodes as Slurm writes them: `n1`, `n[1-3,7]`, `n[01-10],m2`."""

from __future__ import annotations

from nodectl.binding import brackets
from nodectl.binding.entries import shown
from nodectl.binding.refused import Refused
from nodectl.model.number import whole

# A list costs as much as its names, not as its text: `n[0-999999]` is short.
MAX_NAMES = 4096
MAX_NAME = 255
_MAX_NUMBER = 999_999


def expand(text: str) -> tuple[str, ...]:
    """The names of a list, in its order; blank is none. Raises Refused."""
    names: list[str] = []
    for word in filter(None, map(str.strip, brackets.words(text))):
        for name in _names(text, word):
            if len(names) == MAX_NAMES:
                raise _refused(text, f"more than {MAX_NAMES} names")
            names.append(name)
    return tuple(names)


def _names(text: str, word: str) -> list[str]:
    """The names that one word stands for, not many more than there may be. Raises Refused."""
    head, bracket, rest = word.partition("[")
    inside, closed, tail = rest.partition("]")
    if bool(bracket) != bool(closed) or any(mark in head + inside + tail for mark in "[]"):
        raise _refused(text, "brackets do not match")
    if not bracket:
        return [_bounded(text, word)]
    names: list[str] = []
    for part in inside.split(","):
        low, dash, high = part.partition("-")
        first, last = whole(low, _MAX_NUMBER), whole(high if dash else low, _MAX_NUMBER)
        if first is None or last is None or len(low) > MAX_NAME:
            raise _refused(text, f"{shown(part)} is not a number or a range")
        if not 0 <= last - first <= MAX_NAMES - len(names):
            raise _refused(text, f"{shown(part)} runs backwards or is too long")
        _bounded(text, f"{head}{last:0{len(low)}}{tail}")
        names += [f"{head}{number:0{len(low)}}{tail}" for number in range(first, last + 1)]
    return names


def _bounded(text: str, name: str) -> str:
    if len(name) > MAX_NAME:
        raise _refused(text, f"a name of more than {MAX_NAME} characters")
    return name


def _refused(text: str, why: str) -> Refused:
    return Refused(f"node list {shown(text)}: {why}")
