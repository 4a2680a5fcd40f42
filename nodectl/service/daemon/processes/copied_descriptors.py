"""Copies of the daemon's descriptors for another process: all or none."""

import errno
import fcntl
import os
from collections.abc import Iterable

from nodectl.model.wire import framing


def copies(fds: Iterable[int], least: int = 0) -> list[int]:
    """Copy each descriptor, close-on-exec, to a number of at least `least`. Raises OSError; then no copies are left."""
    made: list[int] = []
    try:
        for fd in fds:
            made.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least))
    except OSError as error:
        framing.close(made)
        if error.errno == errno.EINVAL:  # `least` is above this process's limit
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from None
        raise
    return made
