"""Descriptors of the process that runs the tests, which has those of other tests, too."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def now() -> set[tuple[str, str]]:
    """Numbers and what they lead to."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the directory
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """Whatever is opened in this block is closed in it.

    Raises AssertionError. What earlier tests have left open may be closed meanwhile, whenever garbage is collected.
    """
    before = now()
    yield
    assert not now() - before
