"""Refused connections: the listener closes each without waiting for a user.

Descriptors may lie unread in a connection, and the process that closes it last closes them, too. With a user's own file
system that can take for ever, and no signal ends it. So a refused connection is shut down first: nothing more comes in.
If nothing lies there, the listener closes it. Otherwise a child closes it as the user who sent it. A user has few such
children at a time; accounts that share a part of the session processes share these children as well. Runs in the
listener, as root, one thread.
"""

import _signal
import _socket
import fcntl
import os
import resource
import termios

from nodectl.service.listener import session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from nodectl.model.wire import framing

MOST_CHILDREN = 2  # children of one user
_CHILD_SECONDS = 5  # until SIGALRM ends a child that a signal can interrupt
_INTERRUPT_SECONDS = 0.05


class Refusals:
    """The refused connections of all users, at most `most` of which are open at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._held: dict[int, tuple[int, int, list[_socket.socket]]] = {}  # by share: uid, gid, connections
        self._children: dict[int, int] = {}  # the share of each
        self._busy: dict[int, int] = {}  # by share, how many children

    @property
    def is_busy(self) -> bool:
        """Whether a connection or a child is left, so `go_on` must be called again."""
        return bool(self._held or self._children)

    def add(self, sock: "_socket.socket", peer: "framing.Peer", share: int) -> None:
        """Refuse the connection. `share` names the limit on children: the uid, or the share of all unknown accounts."""
        try:
            sock.shutdown(_socket.SHUT_RDWR)  # under the kernel's lock of the socket: from now on nothing arrives
        except OSError:
            pass  # the other end has gone
        if not _holds_unread(sock):
            sock.close()
            return
        if self._count >= self._most:
            close_in_time(sock)  # the last resort: half of our descriptors are refused connections
            return
        self._held.setdefault(share, (peer.uid, peer.gid, []))[2].append(sock)
        self._count += 1

    def go_on(self) -> None:
        """Fork children which close the held connections, up to MOST_CHILDREN for each share."""
        for share in [one for one in self._held if self._busy.get(one, 0) < MOST_CHILDREN]:
            uid, gid, socks = self._held[share]
            if self._fork(share, uid, gid, socks):
                del self._held[share]
                self._count -= len(socks)

    def _fork(self, share: int, uid: int, gid: int, socks: "list[_socket.socket]") -> bool:
        """Fork a child to close the connections. Return False without a free process or descriptor.

        The connections then stay open until the next attempt.
        """
        try:
            reader, writer = os.pipe2(os.O_CLOEXEC)
        except OSError:
            return False
        try:
            pid = os.fork()
            if pid == 0:
                _be_last(reader, [sock.fileno() for sock in socks], uid, gid)
        except OSError:
            return False
        else:
            self._children[pid] = share
            self._busy[share] = self._busy.get(share, 0) + 1
            for sock in socks:
                sock.close()
            return True
        finally:
            os.close(reader)
            os.close(writer)

    def reaped(self, pid: int) -> None:
        """Note the end of a child of the listener, which may be a child of this class or not."""
        share = self._children.pop(pid, None)
        if share is not None:
            self._busy[share] -= 1
            if not self._busy[share]:
                del self._busy[share]


def most_held() -> int:
    """Return half the number of descriptors allowed to this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def close_in_time(sock: "_socket.socket") -> None:
    """Close a connection also held by another process, and interrupt a close which blocks.

    If that process has died meanwhile, this is the last close and waits for what lies unread in the connection. A
    signal ends most such waits.
    """
    _signal.setitimer(_signal.ITIMER_REAL, _INTERRUPT_SECONDS, _INTERRUPT_SECONDS)
    sock.close()
    _signal.setitimer(_signal.ITIMER_REAL, 0)


def _holds_unread(sock: "_socket.socket") -> bool:
    """Return True if unread data lies in the connection. Descriptors come with at least a byte."""
    return any(fcntl.ioctl(sock.fileno(), termios.FIONREAD, b"\0" * 4))


def _be_last(reader: int, kept: "list[int]", uid: int, gid: int) -> "NoReturn":
    """In a child: hold nothing but the connections until the listener lets go, then close the connections as the user.

    The child becomes the user's only then, because the user could kill the child earlier.
    """
    try:
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
        low = 3
        for fd in sorted({reader, *kept}):
            os.closerange(low, fd)
            low = fd + 1
        os.closerange(low, os.sysconf("SC_OPEN_MAX"))
        os.read(reader, 1)
        session.become(uid, gid, "nodectl-refuse")
        _signal.setitimer(_signal.ITIMER_REAL, _CHILD_SECONDS)
        for fd in kept:
            os.close(fd)
    finally:
        os._exit(0)
