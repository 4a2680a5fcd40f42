"""Descriptors that the daemon hands on: copied all or not at all, so that none is lost where there is no room."""

import fcntl
import os
from collections.abc import Iterable


def copies(fds: Iterable[int], least: int = 0) -> list[int]:
    """A copy of each, numbered from `least` on, closed at an exec. Raises OSError, and then there is none."""
    made: list[int] = []
    try:
        for fd in fds:
            made.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least))
    except OSError:
        close(made)
        raise
    return made


def close(fds: Iterable[int]) -> None:
    """Closes each."""
    for fd in fds:
        os.close(fd)
