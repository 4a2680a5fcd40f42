"""Names of nodes in Slurm's notation, `n1`, `n[1-3,7]`, `n[01-10],m2`: expansion to single names, and back. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.model import brackets
from nodectl.model.cpu_list import runs_of
from nodectl.model.number import whole
from nodectl.placement.binding.entries import shown
from nodectl.placement.binding.no_layout import NoLayout

# A list costs as much as its names, not as its text: `n[0-999999]` is short.
MAX_NAMES = 4096
MAX_NODES = 65_536  # of the user's own cluster, whose list no other user has written
MAX_NAME = 255
_MAX_NUMBER = 999_999
_DIGITS = "0123456789"
_LONGEST_NUMBER = 9


def expand(text: str, most: int = MAX_NAMES) -> tuple[str, ...]:
    """Return the names of a list in order, at most `most`; none for a blank text. Raises NoLayout."""
    names: list[str] = []
    for word in filter(None, map(str.strip, brackets.words(text))):
        for name in _names(text, word, most):
            if len(names) == most:
                raise _refused(text, f"more than {most} names")
            names.append(name)
    return tuple(names)


def _names(text: str, word: str, most: int) -> list[str]:
    """Return the names of a word of the list, at most `most` from each bracket. Raises NoLayout."""
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
        if not 0 <= last - first <= most - len(names):
            raise _refused(text, f"{shown(part)} runs backwards or is too long")
        _bounded(text, f"{head}{last:0{len(low)}}{tail}")
        names += [f"{head}{number:0{len(low)}}{tail}" for number in range(first, last + 1)]
    return names


def _bounded(text: str, name: str) -> str:
    if len(name) > MAX_NAME:
        raise _refused(text, f"a name of more than {MAX_NAME} characters")
    return name


def _refused(text: str, why: str) -> NoLayout:
    return NoLayout(f"node list {shown(text)}: {why}")


def compressed(names: Sequence[str], *, in_order: bool = False) -> str:
    """Return the list of the names; names with the same beginning and different last numbers share brackets."""
    groups: dict[tuple[str, int], list[int]] = {}
    split = [_split(name) for name in names]
    padded = {(head, len(digits)) for head, digits in split if digits.startswith("0")}
    for head, digits in split:
        if not digits:
            groups.setdefault((head, 0), [])
            continue
        width = len(digits) if (head, len(digits)) in padded else 1  # 10 stands beside 09
        groups.setdefault((head, width), []).append(int(digits))
    return ",".join(
        head if not width else _group(head, numbers if in_order else sorted(set(numbers)), width)
        for (head, width), numbers in groups.items()
    )


def _split(name: str) -> tuple[str, str]:
    """Return the beginning of a name, and the digits at the end, "" if there are none."""
    digits = name[len(name.rstrip(_DIGITS)) :][-_LONGEST_NUMBER:]
    return name[: len(name) - len(digits)], digits


def _group(head: str, numbers: Sequence[int], width: int) -> str:
    runs = runs_of(numbers)
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return f"{head}{runs[0][0]:0{width}}"
    parts = (f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in runs)
    return f"{head}[{','.join(parts)}]"
