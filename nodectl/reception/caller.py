"""Who made a connection: the very process, not a number that may be another's by now.

Linux 6.5 keeps it with the connection (SO_PEERPIDFD). Before, a process that has the number is believed when it also
holds the other end: it has made the connection, or was handed it and takes part.
"""

import _socket
import os
import struct

from nodectl import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SO_PEERPIDFD = 77  # not named by Python; the same on every architecture but parisc and sparc
# sock_diag(7): of one local socket, which other it is connected to.
_SOCK_DIAG = 4
_NETLINK = 16
_BY_FAMILY, _REQUEST = 20, 1
_SHOW_PEER, _PEER = 4, 2
_ALL = 0xFFFFFFFF
_ASK = struct.Struct("=IHHII BBHIIIII")
_ANSWER = 32  # bytes before the attributes
_ATTRIBUTE = struct.Struct("=HHI")
_MOST_LOOKED_AT = 1024  # files of a process, which may have hundreds of thousands: everybody else waits meanwhile


def pidfd_of(sock: "_socket.socket", pid: int) -> int:
    """The process that made the connection; -1 where it is no more, or cannot be told from another."""
    try:
        return sock.getsockopt(_socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        pass  # an older kernel, or it has gone
    return holder(sock, pid)


def holder(sock: "_socket.socket", pid: int) -> int:
    """The process of this number, if it holds the other end; else -1."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return -1
    try:
        name = f"socket:[{_peer_inode(os.fstat(sock.fileno()).st_ino)}]"
        if name in _open_files(pid) and wire.runs(pidfd):
            return pidfd
    except OSError:
        pass  # it has gone, or the kernel tells nothing of local sockets
    os.close(pidfd)
    return -1


def _open_files(pid: int) -> "Iterator[str]":
    """The first of them; who has its connection behind so many others proves nothing."""
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
        return -1
    at = _ANSWER
    while at + _ATTRIBUTE.size <= len(answer):
        size, kind, value = _ATTRIBUTE.unpack_from(answer, at)
        if kind == _PEER:
            return int(value)
        at += max(4, size + 3 & ~3)
    return -1
