"""Varlink framing over a local stream socket: JSON objects ended by a NUL byte, with file descriptors attached.

Used by every process. The module knows bytes, lengths and descriptors, not methods (`dispatch.py`) or shapes
(`shape.py`). It checks the length limit before it decodes anything. The peer's identity comes from the kernel, never
from a field of the message.
"""

import _socket
import errno
import posix as os  # the half in C: the other one is a millisecond of each step
import select
import sys

from nodectl.model.wire import lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

LONGEST_ORDER = 1 << 17  # bytes: one packet from the daemon to its forkserver
MAX_DESCRIPTORS = 16  # a launch carries four; more in one message is a mistake or an attack
_MOST_IN_KERNEL = 253  # SCM_MAX_FD
_CHUNK = 65536
_INT = 4


class BrokenWire(Exception):
    """Raised when the peer sent no Varlink message or too much of a message; ends the connection.

    str() is one line.
    """


class DescriptorsLost(OSError):
    """Raised when a message came without all of its descriptors; those that came are closed.

    `message` is the message's bytes. The kernel drops descriptors for which this process has no number left
    (recvmsg(2), MSG_CTRUNC).
    """

    def __init__(self, message: bytes) -> None:
        super().__init__(errno.EMFILE, f"recvmsg: {os.strerror(errno.EMFILE)}")
        self.message = message


class Peer:
    """The process at the far end of a connection, as recorded by the kernel when the connection was made.

    See unix(7), SO_PEERCRED, SO_PEERGROUPS. `pidfd` and `place`, the process's cgroup, were looked up when the
    connection was accepted (wire/peer_process.py); they are -1 and "" if the process had ended by then. `inode` is the
    inode of our end of the connection. Where it is not -1, `pidfd` and `place` may belong to another process that got
    the pid of the one that connected.
    """

    __slots__ = ("gid", "groups", "inode", "pid", "pidfd", "place", "uid")

    def __init__(
        self, pid: int, uid: int, gid: int, groups: "Iterable[int]" = (), pidfd: int = -1, inode: int = -1,
        place: str = "",
    ) -> None:  # fmt: skip
        self.pid = pid
        self.uid = uid
        self.gid = gid
        self.groups = (gid, *groups)
        self.pidfd = pidfd
        self.inode = inode
        self.place = place

    def lives(self) -> bool:
        """Return True while the process of `pidfd` runs."""
        return self.pidfd >= 0 and runs(self.pidfd)

    def let_go(self) -> None:
        """Close `pidfd`."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def peer_of(sock: "_socket.socket") -> Peer:
    """Return the peer of a connected local socket, without groups and without a pidfd."""
    raw = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 3 * _INT)
    pid, uid, gid = memoryview(raw).cast("i").tolist()
    return Peer(pid, uid & 0xFFFFFFFF, gid & 0xFFFFFFFF)


def runs(pidfd: int) -> bool:
    """Return True until the process of `pidfd` has ended, even if no parent has waited for the process.

    Uses poll(2), because descriptors may be many.
    """
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not poll.poll(0)


def encode(message: "Mapping[str, object]") -> bytes:
    """Return the bytes of a message, with the final NUL."""
    return lean_json.dumps(message).encode("ascii") + b"\0"


def decode(text: bytes) -> "Mapping[str, object]":
    """Return the message in `text`, which has no final NUL. Raises BrokenWire."""
    return _decoded(text, lean_json.load_object)


def decode_call(text: bytes) -> "Mapping[str, object]":
    """Return the call in `text`, sent by a user, in bounded time, because further users wait. Raises BrokenWire."""
    return _decoded(text, lean_json.load_call)


def _decoded(text: bytes, load: "Callable[[bytes], Mapping[str, object]]") -> "Mapping[str, object]":
    try:
        return load(text)
    except lean_json.BadJson as error:
        raise BrokenWire(f"message is {error}") from None


def descriptors_in(ancillary: "Sequence[tuple[int, int, bytes]]") -> list[int]:
    """Return the descriptors in the ancillary data of recvmsg(2). The caller closes the descriptors."""
    found: list[int] = []
    for level, kind, raw in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            whole = len(raw) - len(raw) % _INT
            found += memoryview(raw[:whole]).cast("i").tolist()
    return found


def receive_packet(sock: "_socket.socket", longest: int, most: int, flags: int = 0) -> tuple[bytes, list[int]]:
    """Receive once, at most `longest` bytes. Return them with their descriptors, at most `most`, close-on-exec.

    The caller closes the descriptors. Raises DescriptorsLost, OSError.
    """
    room = _socket.CMSG_SPACE(most * _INT)
    data, ancillary, came, _ = sock.recvmsg(longest, room, flags | _socket.MSG_CMSG_CLOEXEC)
    fds = descriptors_in(ancillary)
    if came & _socket.MSG_CTRUNC:
        close(fds)
        raise DescriptorsLost(data)
    return data, fds


def exactly(count: int, fds: "Sequence[int]") -> "Sequence[int]":
    """Return `fds` if the number of descriptors is `count`.

    Raises OSError otherwise: the kernel drops descriptors for which this process has no room.
    """
    if len(fds) != count:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return fds


def hand_over(sock: "_socket.socket", fds: "Sequence[int]") -> None:
    """Send `fds`, which may be empty, with a single byte into a new connection, before any data.

    Raises OSError.
    """
    sock.sendmsg([b"\0"], _rights(fds), _socket.MSG_NOSIGNAL)


def take_over(sock: "_socket.socket") -> list[int]:
    """Receive the descriptors sent by `hand_over`, close-on-exec. The caller closes the descriptors. Raises OSError."""
    return receive_packet(sock, 1, _MOST_IN_KERNEL)[1]


def close(fds: "Iterable[int]") -> None:
    """Close each descriptor, even if the close takes for ever, as a descriptor sent by a user may.

    An error of close(2) comes from the file, perhaps on a user's own file system. The descriptor is free all the same.
    """
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            continue


def _rights(fds: "Sequence[int]") -> list[tuple[int, int, bytes]]:
    if not fds:
        return []
    numbers = b"".join([fd.to_bytes(_INT, sys.byteorder) for fd in fds])
    return [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)]


class Inbox:
    """The received and not yet taken part of a connection's stream: bytes, and the descriptors received with the bytes.

    The caller of `take_descriptors` owns the descriptors; `close` closes those not taken. A read that brings
    descriptors ends within their message or at its end. The rest of that message may arrive together with later
    messages.
    """

    __slots__ = ("_brought", "_data", "_limit", "_searched", "descriptors")

    def __init__(self, limit: int) -> None:
        self._data = bytearray()
        self._limit = limit
        self._searched = 0
        self._brought: list[tuple[int, list[int]]] = []  # offsets of the ends of reads, with their fds
        self.descriptors: list[int] = []  # of messages that have been taken

    def receive(self, sock: "_socket.socket") -> bool:
        """Read once. Return False at the end of the stream. Raises BrokenWire, BlockingIOError, ConnectionError."""
        room = _socket.CMSG_SPACE(_MOST_IN_KERNEL * _INT)  # the kernel closes descriptors without room
        data, ancillary, flags, _ = sock.recvmsg(_CHUNK, room, _socket.MSG_CMSG_CLOEXEC)
        if fds := descriptors_in(ancillary):
            self._brought.append((len(self._data) + len(data) - 1, fds))
            if len(self.descriptors) + sum(len(fds) for _, fds in self._brought) > MAX_DESCRIPTORS:
                raise BrokenWire(f"more than {MAX_DESCRIPTORS} descriptors in one message")
        if flags & _socket.MSG_CTRUNC:
            raise BrokenWire("no room for the descriptors of a message")
        self._data += data
        return bool(data)

    def feed(self, data: bytes) -> None:
        """Append data read elsewhere, from a pipe."""
        self._data += data

    @property
    def size(self) -> int:
        """The number of bytes not yet taken."""
        return len(self._data)

    def next(self) -> "Mapping[str, object] | None":
        """Return the next whole message, or None until more bytes have come. Raises BrokenWire."""
        text = self.take()
        return None if text is None else decode(text)

    def take(self) -> bytes | None:
        """Return the bytes of the next whole message for `decode`, or None until more bytes have come.

        The bytes are many times smaller than the values they decode to. Raises BrokenWire.
        """
        end = self._data.find(0, self._searched)
        if end < 0:
            self._searched = len(self._data)
            if self._searched > self._limit:
                raise BrokenWire(f"message longer than {self._limit} bytes")
            return None
        if end > self._limit:
            raise BrokenWire(f"message longer than {self._limit} bytes")
        text = bytes(self._data[:end])
        del self._data[: end + 1]
        self._searched = 0
        if self._brought:
            while self._brought and self._brought[0][0] <= end:
                self.descriptors += self._brought.pop(0)[1]
            self._brought = [(at - end - 1, fds) for at, fds in self._brought]
        return text

    @property
    def partial(self) -> bool:
        """Whether the stream stopped inside a message."""
        return bool(self._data)

    def take_descriptors(self) -> list[int]:
        """Return the descriptors of the messages taken so far. The caller closes the descriptors."""
        taken, self.descriptors = self.descriptors, []
        return taken

    def close(self) -> None:
        """Close the descriptors not taken."""
        close(self.take_descriptors())
        for _, fds in self._brought:
            close(fds)
        self._brought = []


def send(sock: "_socket.socket", message: "Mapping[str, object]", fds: "Sequence[int]" = ()) -> None:
    """Send a whole message on a blocking socket, `fds` with the first byte. Raises ConnectionError, OSError."""
    data = encode(message)
    sent = send_some(sock, data, fds) if fds else 0
    if sent < len(data):
        sock.sendall(data[sent:], _socket.MSG_NOSIGNAL)


def send_some(sock: "_socket.socket", data: "bytes | bytearray", fds: "Sequence[int]" = ()) -> int:
    """Send as many bytes as fit, `fds` with the first byte. Return the number of bytes sent. Raises OSError."""
    return sock.sendmsg([data], _rights(fds), _socket.MSG_NOSIGNAL)


def receive(
    sock: "_socket.socket", inbox: Inbox, before_read: "Callable[[], None] | None" = None
) -> "Mapping[str, object] | None":
    """Return the next message from a blocking socket, or None at a clean end of the stream.

    `before_read` may wait until the socket is readable. Raises BrokenWire, OSError.
    """
    while (message := inbox.next()) is None:
        if before_read is not None:
            before_read()
        if not inbox.receive(sock):
            if inbox.partial:
                raise BrokenWire("the connection ended inside a message")
            return None
    return message


def connect(path: str) -> "_socket.socket":
    """Connect a blocking socket to `path`. Raises OSError naming the path."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC, 0)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise type(error)(error.errno, f"connect: {error.strerror}", path) from None
    return sock
