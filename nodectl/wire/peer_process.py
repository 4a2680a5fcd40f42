"""Which process made a connection, and where it was: a pidfd and a cgroup, not a number that may be another process's
by now.

Both are fixed when the connection is accepted, before anything of it is read: a process that connects, sends and ends
has nothing to gain. From Linux 6.5 on the kernel keeps the pidfd with the connection. On older kernels the process that
has the number when the connection is accepted is believed when it also holds the other end of the socket: then it has
made the connection, or was given it. That is looked at only where it matters, as it takes longer than to accept a
connection.
"""

import _socket
import errno
import os
import struct

from nodectl.kernel import _kernel
from nodectl.kernel.processes import cgroup_of
from nodectl.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SO_PEERPIDFD = 77  # not named by Python
# sock_diag(7): of one local socket, which other it is connected to.
_SOCK_DIAG = 4
_NETLINK = 16
_BY_FAMILY, _REQUEST = 20, 1
_SHOW_PEER, _PEER = 4, 2
_ALL = 0xFFFFFFFF
_ASK = struct.Struct("=IHHII BBHIIIII")
_HEADER = 16  # bytes of a netlink message
_ANSWER = 32  # bytes before the attributes
_ATTRIBUTE = struct.Struct("=HHI")
_MOST_LOOKED_AT = 1024  # files of a process, which may have hundreds of thousands: all others wait meanwhile


class _Kernel:
    tells = True  # about local sockets; where it does not, each question would make it look for a module


class Gone(Exception):
    """The process that connected had ended before anything could be told of it; str() is one line."""


def accepted(sock: "_socket.socket") -> framing.Peer:
    """The peer of a connection that has just been accepted, without its groups. `let_go` closes its pidfd."""
    peer = framing.peer_of(sock)
    try:
        peer.pidfd = sock.getsockopt(_socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT:  # before Linux 6.5: else it has ended
            _take_by_number(peer, sock)
    if peer.pidfd >= 0:
        place = cgroup_of(peer.pid)
        peer.place = place if peer.lives() else ""  # in this order: another process may have its number by now
    return peer


def groups_of_peer(sock: "_socket.socket") -> list[int]:
    """The peer's supplementary groups when it connected. None of one that has thousands, as a process may have that was
    given the groups of /etc/subgid: others would wait while they are read. Raises OSError.
    """
    return _kernel.peer_groups(sock.fileno())


def place_of(peer: framing.Peer) -> str:
    """The cgroup in which the process was that connected. "" where the kernel does not tell which process that is, or
    where it is. Raises Gone.
    """
    if peer.inode >= 0 and holds(peer.inode, peer.pid) and peer.lives():
        peer.inode = -1
    if peer.inode < 0 and peer.place:
        return peer.place
    if not peer.lives():
        raise Gone(f"process {peer.pid} connected and has ended")
    return ""


def _take_by_number(peer: framing.Peer, sock: "_socket.socket") -> None:
    try:
        peer.pidfd = os.pidfd_open(peer.pid)
        peer.inode = os.fstat(sock.fileno()).st_ino
    except OSError:
        pass  # it has ended


def holds(inode: int, pid: int) -> bool:
    """True where the process has the other end of the socket with this inode."""
    if not _Kernel.tells:
        return False
    try:
        return f"socket:[{_peer_inode(inode)}]" in _open_files(pid)
    except OSError:
        return False  # it has gone, or the kernel tells nothing about local sockets


def _open_files(pid: int) -> "Iterator[str]":
    """The first of its open files. A process with its connection behind so many others proves nothing."""
    with os.scandir(f"/proc/{pid}/fd") as files:
        for _, entry in zip(range(_MOST_LOOKED_AT), files):  # noqa: B905  # either may end first
            try:
                yield os.readlink(entry.path)
            except FileNotFoundError:
                continue


def _peer_inode(inode: int) -> int:
    """The inode of the other end, -1 for none. Raises OSError."""
    about = (_socket.AF_UNIX, 0, 0, _ALL, inode, _SHOW_PEER, _ALL, _ALL)
    link = _socket.socket(_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _SOCK_DIAG)
    try:
        link.sendto(_ASK.pack(_ASK.size, _BY_FAMILY, _REQUEST, 0, 0, *about), (0, 0))
        answer = link.recv(4096)
    finally:
        link.close()
    if answer[4:6] != struct.pack("=H", _BY_FAMILY):
        _Kernel.tells = struct.unpack_from("=i", answer, _HEADER)[0] != -errno.ENOENT
        return -1
    at = _ANSWER
    while at + _ATTRIBUTE.size <= len(answer):
        size, kind, value = _ATTRIBUTE.unpack_from(answer, at)
        if kind == _PEER:
            return int(value)
        at += max(4, size + 3 & ~3)
    return -1
