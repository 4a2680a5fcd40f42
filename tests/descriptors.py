"""Descriptors: of the process that runs the tests, which has those of other tests, too; and a process without any."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
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


@contextlib.contextmanager
def no_number_left(pid: int, but: int = 0) -> Iterator[None]:
    """In this block the process can open `but` descriptors. It keeps those that it has."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    gc.collect()  # in this process, else what earlier tests have left may be closed in the block
    gc.disable()
    listed = os.listdir(f"/proc/{pid}/fd")
    used = {int(name) for name in listed if os.path.lexists(f"/proc/{pid}/fd/{name}")}  # not that of the list itself
    free = [number for number in range(soft) if number not in used][but]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        gc.enable()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
