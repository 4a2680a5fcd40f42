"""The client's standard streams: they wait in a socket, and whoever needs them takes copies there.

The socket is the daemon's own, its other end was given to the desk of the client (`nodectl/reception`). The stepd looks
whether something has come and at the byte that came with it; a task or a pump, which may hang in what a user made
without hindering anybody, takes the descriptors.
"""

import _socket
import errno
import os

from nodectl import wire
from nodectl.reception import frames


def greet(streams: int) -> None:
    """Tells the desk that a stepd is there: should the daemon end now, the step has begun all the same."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, streams)
    try:
        sock.send(frames.BEGUN, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
    except OSError:
        pass  # the client has gone
    finally:
        sock.detach()


def has_come(streams: int) -> bool:
    """True when the streams are there. Raises OSError where they never will be."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, streams)
    try:
        if not sock.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT):
            raise OSError(errno.EPIPE, "its connection has ended")
    except BlockingIOError:
        return False
    finally:
        sock.detach()
    return True


def take(streams: int, *, stay: bool = True) -> "tuple[int, int, int]":
    """Copies of the three, in a task or a pump; with `stay` others will want them, too. Raises OSError.

    What stays is in flight for as long as the step runs, and of that a user may have no more than RLIMIT_NOFILE.
    """
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, streams)
    try:
        fds = wire.take_over(sock, stay=stay)
    finally:
        sock.detach()
    if len(fds) != 3:  # the daemon counted them
        wire.close(fds)
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return fds[0], fds[1], fds[2]
