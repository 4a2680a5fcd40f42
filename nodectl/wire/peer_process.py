"""Which process made a connection: a pidfd, not a number that may be another process's by now.

From Linux 6.5 on the kernel keeps the pidfd with the connection, and the reception passes it on. On older kernels a
process with the right number is believed when it also holds the other end of the socket: then it has made the
connection, or was given it. The daemon looks at that only where it matters, as it takes longer than to accept a
connection.
"""

import _socket
import errno
import os
import struct

from nodectl.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

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


def prove(peer: framing.Peer) -> None:
    """Gives the peer a pidfd, if its process can be told from others that may have had the number."""
    if peer.pidfd < 0 and peer.inode >= 0:
        peer.pidfd = holder(peer.inode, peer.pid)


def holder(inode: int, pid: int) -> int:
    """A pidfd of the process, if it holds the other end of the socket with this inode; else -1."""
    if not _Kernel.tells:
        return -1
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return -1
    try:
        name = f"socket:[{_peer_inode(inode)}]"
        if name in _open_files(pid) and framing.runs(pidfd):
            return pidfd
    except OSError:
        pass  # it has gone, or the kernel tells nothing about local sockets
    os.close(pidfd)
    return -1


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
