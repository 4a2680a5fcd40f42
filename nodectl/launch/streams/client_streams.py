"""The client's standard streams, which wait in a socket for tasks and relays to take copies.

The daemon has made the socket; its other end is in the process that serves the client (`nodectl/service/listener`). The
stepd only looks whether the streams have come. Tasks and relays take the descriptors: a user has made these, so that
any use may hang, and nothing waits for a task or a relay. When the last of several tasks has its copies, none stay in
the socket.
"""

import _socket
import errno
import os

from nodectl.kernel import _kernel
from nodectl.model.wire import frames, framing


def greet(streams: int) -> None:
    """Tell the client's process about the start of the stepd: from now on the step needs no daemon."""
    _kernel.say(streams, frames.BEGUN)


def has_come(streams: int) -> bool:
    """Return True when the streams have come. Raises OSError if the streams will never come."""
    return _kernel.has_come(streams)


def are_left(streams: int) -> bool:
    """Return True if the streams still lie in the socket, and refuse any further streams.

    Closing them may take as long as their maker likes. False for a socket that is closed already.
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
            continue  # reported once, whatever is there
        except BrokenPipeError:
            return False  # the socket's end has come instead


def take(streams: int, *, stay: bool = True) -> "tuple[int, int, int]":
    """Take copies of the three streams, in a task or a relay. Raises OSError.

    With `stay` the descriptors stay in the socket for further takers. They are in flight while the step runs; a user
    may have no more of those than RLIMIT_NOFILE.
    """
    fds = _kernel.take_descriptors(streams, stay)
    if len(fds) != 3:  # the daemon counted them
        framing.close(fds)
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return fds[0], fds[1], fds[2]
