"""Work that its caller may leave at any yield, to go on later: a generator that returns what it was for. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")


def finished(pieces: Generator[None, None, _T]) -> _T:
    """What the generator returns, without other work in between."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typeshed has Any here
