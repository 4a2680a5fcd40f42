"""Texts of batch jobs, packed, for tests of the tables that keep them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from nodectl.service.daemon.history.batch_text import BatchText, PackedText, packing, unpacking

_T = TypeVar("_T")


def at_once(pieces: Generator[None, None, _T]) -> tuple[_T, int]:
    """What a generator returns, and how many pieces that took."""
    count = 0
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value, count
        count += 1


def packed(text: BatchText) -> PackedText:
    return at_once(packing(text))[0]


def unpacked(text: PackedText | None) -> BatchText:
    assert text is not None
    return at_once(unpacking(text))[0]
