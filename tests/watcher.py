"""Who cleans up behind a run of tests, in whatever way it ends: a process outside of it, in a session of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable


def begin(last: Callable[[], None]) -> tuple[int, int]:
    """Forks who does `last` when we have gone: its pid, and the descriptor that it takes for our life."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.setsid()  # it is not struck with us
            os.close(writer)
            os.read(reader, 1)
            last()
        os._exit(0)
    os.close(reader)
    return pid, writer
