"""Work in pieces: a generator with a result, to be left at any yield and continued later. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")


def finished(pieces: Generator[None, None, _T]) -> _T:
    """Run the generator to the end without a break, and return the result."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typeshed has Any here
