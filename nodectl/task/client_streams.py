"""The client's standard streams: they wait in a socket, and whoever needs them takes copies there.

The socket is the daemon's own, its other end was given to the desk of the client (`nodectl/reception`). The stepd looks
whether something has come and at the byte that came with it; a task or a pump, which may hang in what a user made
without hindering anybody, takes the descriptors.
"""

import errno
import os

from nodectl.kernel import _kernel
from nodectl.wire import frames, framing


def greet(streams: int) -> None:
    """Tells the desk that a stepd is there: should the daemon end now, the step has begun all the same."""
    _kernel.say(streams, frames.BEGUN)


def has_come(streams: int) -> bool:
    """True when the streams are there. Raises OSError where they never will be."""
    return _kernel.has_come(streams)


def take(streams: int, *, stay: bool = True) -> "tuple[int, int, int]":
    """Copies of the three, in a task or a pump; with `stay` others will want them, too. Raises OSError.

    What stays is in flight for as long as the step runs, and of that a user may have no more than RLIMIT_NOFILE.
    """
    fds = _kernel.take_descriptors(streams, stay)
    if len(fds) != 3:  # the daemon counted them
        framing.close(fds)
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return fds[0], fds[1], fds[2]
