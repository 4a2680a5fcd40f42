"""Descriptors of the daemon's own, copied for another process: all or none."""

import fcntl
from collections.abc import Iterable

from nodectl.wire import framing


def copies(fds: Iterable[int], least: int = 0) -> list[int]:
    """A copy of each, numbered from `least` on, closed at an exec. Raises OSError, and then there is none."""
    made: list[int] = []
    try:
        for fd in fds:
            made.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least))
    except OSError:
        framing.close(made)
        raise
    return made
