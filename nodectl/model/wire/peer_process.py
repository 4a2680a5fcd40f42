"""Identifies the process behind a connection by a pidfd and a cgroup, not by a pid, which may be reused.

Both are fixed when the connection is accepted, before anything of it is read: a process that connects, sends and ends
has nothing to gain. From Linux 6.5 on the kernel keeps the pidfd with the connection. On older kernels, the process
that has the pid when the connection is accepted counts as the peer only if it also holds the other end of the socket:
then it made the connection or was given it. This is checked only where it matters, because the check takes longer than
accepting a connection.
"""

import _socket
import errno
import os
import struct

from nodectl.kernel import _kernel
from nodectl.kernel.processes import cgroup_of
from nodectl.model.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SO_PEERPIDFD = 77  # not named by Python
# sock_diag(7): ask for the peer of a local socket.
_SOCK_DIAG = 4
_NETLINK = 16
_BY_FAMILY, _REQUEST = 20, 1
_SHOW_PEER, _PEER = 4, 2
_ALL = 0xFFFFFFFF
_ASK = struct.Struct("=IHHII BBHIIIII")
_HEADER = 16  # bytes of a netlink message
_ANSWER = 32  # bytes before the attributes
_ATTRIBUTE = struct.Struct("=HHI")
_MOST_LOOKED_AT = 1024  # files of a process, which may have hundreds of thousands: other users wait meanwhile


class _Kernel:
    tells = True  # about local sockets; a kernel that does not would look for a module at each question


class PeerGone(Exception):
    """Raised when the peer process ended before the look-up of the cgroup; str() is a line."""


def accepted(sock: "_socket.socket") -> framing.Peer:
    """Return the peer of a connection just accepted, without groups. `let_go` closes the pidfd."""
    peer = framing.peer_of(sock)
    try:
        peer.pidfd = sock.getsockopt(_socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT:  # before Linux 6.5; for other errors, the process has ended
            _take_by_number(peer, sock)
    if peer.pidfd >= 0:
        place = cgroup_of(peer.pid)
        peer.place = place if peer.lives() else ""  # in this order: the pid may be reused by now
    return peer


def groups_of_peer(sock: "_socket.socket") -> list[int]:
    """Return the supplementary groups of the peer at the time of the connection. Raises OSError.

    A peer with thousands of groups, as a process with the groups of /etc/subgid may have, counts as having none,
    because reading them would delay others.
    """
    return _kernel.peer_groups(sock.fileno())


def place_of(peer: framing.Peer) -> str:
    """Return the peer process's cgroup at accept, or "" if the kernel does not tell the process or the cgroup.

    Raises PeerGone if the process has ended and its cgroup is not known for certain.
    """
    if peer.inode >= 0 and holds(peer.inode, peer.pid) and peer.lives():
        peer.inode = -1
    if peer.inode < 0 and peer.place:
        return peer.place
    if not peer.lives():
        raise PeerGone(f"process {peer.pid} connected and has ended")
    return ""


def _take_by_number(peer: framing.Peer, sock: "_socket.socket") -> None:
    try:
        peer.pidfd = os.pidfd_open(peer.pid)
        peer.inode = os.fstat(sock.fileno()).st_ino
    except OSError:
        pass  # the process has ended


def holds(inode: int, pid: int) -> bool:
    """Return True if the process holds the far end of the socket with this inode."""
    if not _Kernel.tells:
        return False
    try:
        return f"socket:[{_peer_inode(inode)}]" in _open_files(pid)
    except OSError:
        return False  # the process has gone, or the kernel tells nothing about local sockets


def _open_files(pid: int) -> "Iterator[str]":
    """Yield the targets of the process's first open files. A connection behind more files proves nothing."""
    with os.scandir(f"/proc/{pid}/fd") as files:
        for _, entry in zip(range(_MOST_LOOKED_AT), files):  # noqa: B905  # either may end first
            try:
                yield os.readlink(entry.path)
            except FileNotFoundError:
                continue


def _peer_inode(inode: int) -> int:
    """Return the inode of the socket's far end, or -1 for none. Raises OSError."""
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
