"""Lists of nodes in Slurm's notation, `n[01-03,7],login`: expansion to single names, and back. Pure.

For nodes of any cluster: a script may ask for names that this machine has never heard of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodectl.client.command import Failed
from nodectl.placement.binding.hostlist import compressed

__all__ = ["compressed", "expanded"]

_MOST = 65_536  # names; a list costs as much as its names, not as its text
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def expanded(text: str) -> list[str]:
    """Return the names, in the order of the list. Raises Failed."""
    names: list[str] = []
    for word in _words(text):
        for name in _names(word):
            if len(names) == _MOST:
                raise Failed(f"Invalid hostlist: {text[:40]}: more than {_MOST} names")
            names.append(name)
    return names


def _words(text: str) -> Iterator[str]:
    """Yield the words between commas outside of brackets."""
    depth, word = 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            break
        if letter in ", \t\n" and not depth:
            if word:
                yield word
            word = ""
        else:
            word += letter
    if depth:
        raise Failed(f"Invalid hostlist: {text[:40]}")
    if word:
        yield word


def _names(word: str) -> Iterator[str]:
    head, bracket, rest = word.partition("[")
    if not bracket:
        yield word
        return
    inside, _, tail = rest.partition("]")
    for part in inside.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise Failed(f"Invalid hostlist: {word[:40]}")
        for number in range(int(found[1]), int(found[2] or found[1]) + 1):
            for end in _names(tail) if tail else ("",):
                yield f"{head}{number:0{len(found[1])}}{end}"
