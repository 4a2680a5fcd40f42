"""Copies of the daemon's descriptors for another process: all of them or none."""

import errno
import fcntl
import os
from collections.abc import Iterable

from nodectl.wire import framing


def copies(fds: Iterable[int], least: int = 0) -> list[int]:
    """Copies each descriptor. The copies are numbered from `least` on, and an exec closes them. Raises OSError; then
    there are no copies.
    """
    made: list[int] = []
    try:
        for fd in fds:
            made.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least))
    except OSError as error:
        framing.close(made)
        if error.errno == errno.EINVAL:  # `least` is above what this process may have
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from None
        raise
    return made
