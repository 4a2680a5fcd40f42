"""The client's standard streams: they wait in a socket, from which tasks and pumps take copies.

The daemon has made the socket; its other end is in the process that serves the client (`nodectl/reception`). The stepd
only looks whether the streams have come. Tasks and pumps take the descriptors: a user has made them, so that any use
may hang, and nobody waits for a task or a pump. When the last of several tasks has its copies nothing stays.
"""

import _socket
import errno
import os

from nodectl.kernel import _kernel
from nodectl.wire import frames, framing


def greet(streams: int) -> None:
    """Tells the client's process that the stepd runs: from now on the step needs no daemon."""
    _kernel.say(streams, frames.BEGUN)


def has_come(streams: int) -> bool:
    """True when the streams have come. Raises OSError where they never will."""
    return _kernel.has_come(streams)


def are_left(streams: int) -> bool:
    """Whether they still lie there: to close them may take as long as their maker likes. From now on none can come.
    Never for a socket that is closed already.
    """
    try:
        socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, streams)
    except OSError:
        return False
    try:
        socket.shutdown(_socket.SHUT_RD)
    finally:
        socket.detach()
    while True:
        try:
            return has_come(streams)
        except ConnectionResetError:
            continue  # told once, whatever is there
        except BrokenPipeError:
            return False  # its end has come instead


def take(streams: int, *, stay: bool = True) -> "tuple[int, int, int]":
    """Takes copies of the three, in a task or a pump. With `stay` they stay there for others. Raises OSError.

    Descriptors that stay are in flight while the step runs; a user may have no more of those than RLIMIT_NOFILE.
    """
    fds = _kernel.take_descriptors(streams, stay)
    if len(fds) != 3:  # the daemon counted them
        framing.close(fds)
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return fds[0], fds[1], fds[2]
