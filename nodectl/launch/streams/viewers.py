"""The viewers of a step's streams: the launching client of a step with a terminal, and clients attached later.

Runs in the process that copies the streams, as the step's user. Viewers are sockets, and the process waits for none.
Output that the launching client has not read is kept, and the program waits, unless other viewers would have to wait
with it. Other viewers miss the oldest output that they do not read in time, and are told how much. A newly attached
viewer is shown the last of the earlier output. The daemon has asked the kernel who the viewers are, and root alone
reaches `listener`.
"""

import _socket
import os
import select
import time
from collections import deque

from nodectl.model.wire import terminal_packets as packets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOM = packets.HEAD + packets.LONGEST
_MOST = 16  # attached viewers
_REMEMBERED = 65536  # bytes
_MOST_UNREAD = 1 << 18  # bytes
_PATIENCE = 2.0  # seconds that viewers wait for a client that does not read, and that all have at the end


class Viewer:
    """A viewer of the streams.

    `unread` are packets for which its socket has no room, of `size` bytes. A viewer that `skips` loses the oldest
    packets where they are too many: `missed` bytes. `window` is the struct winsize of a viewer that types, b"" for
    none.
    """

    __slots__ = ("is_client", "missed", "size", "skips", "sock", "stuck", "unread", "waited_for", "window")

    def __init__(self, fd: int, *, is_client: bool = False) -> None:
        self.sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)
        self.is_client = is_client
        self.skips = not is_client
        self.unread: deque[bytes] = deque()
        self.size = 0
        self.missed = 0
        self.stuck = 0.0  # since when
        self.window = b""
        self.waited_for = select.EPOLLIN

    def add(self, packet: bytes) -> None:
        """Add a packet for the viewer, and send as much as there is room for. Raises OSError."""
        self.unread.append(packet)
        self.size += len(packet)
        while self.skips and self.size > _MOST_UNREAD:
            lost = len(self.unread.popleft())
            self.size -= lost
            self.missed += lost
        self.flush()

    def flush(self) -> None:
        """Send unread packets as far as the socket has room. Raises OSError."""
        try:
            while self.unread:
                if self.missed:
                    self._send(packets.packet(packets.NOTE, b"%d bytes that were not read are missing" % self.missed))
                    self.missed = 0
                self._send(self.unread[0])
                self.size -= len(self.unread.popleft())
        except BlockingIOError:
            self.stuck = self.stuck or time.monotonic()
            return
        self.stuck = 0.0
        self.skips = not self.is_client

    def _send(self, packet: bytes) -> None:
        self.sock.send(packet, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)


class Viewers:
    """All viewers, by socket. `client` and `listener` are descriptors, -1 for none."""

    def __init__(self, client: int, listener: int, window: bytes = b"") -> None:
        self._events = select.epoll()
        self._hears = True
        self._by_fd: dict[int, Viewer] = {}
        self._client: Viewer | None = None
        self._last: deque[bytes] = deque()  # packets
        self._remembered = 0
        self._listener = None
        if client >= 0:
            self._client = Viewer(client, is_client=True)
            self._client.window = window
            self._add(self._client)
        if listener >= 0:
            self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, listener)
            self._listener.setblocking(False)
            self._events.register(listener, select.EPOLLIN)

    @property
    def fd(self) -> int:
        """The descriptor for poll(2): when readable, `serve` has something to do."""
        return self._events.fileno()

    @property
    def client_is_there(self) -> bool:
        """False when the launching client has gone."""
        return self._client is not None and self._client.sock.fileno() in self._by_fd

    @property
    def unread(self) -> bool:
        """True while the launching client has not read everything."""
        return self._client is not None and bool(self._client.unread)

    def have_room(self) -> bool:
        """Return True if more may be shown: the client has read all, or further viewers have waited long enough."""
        client = self._client
        if client is None or not client.unread or client.skips:
            return True
        client.skips = len(self._by_fd) > 1 and time.monotonic() >= client.stuck + _PATIENCE
        return client.skips

    @property
    def patience(self) -> float | None:
        """The seconds until the remaining viewers have waited long enough for the client; None for never."""
        client = self._client
        if client is None or not client.unread or client.skips or len(self._by_fd) < 2:
            return None
        return max(0.0, client.stuck + _PATIENCE - time.monotonic())

    def others_type(self) -> bool:
        """Return True if a viewer except the launching client may type."""
        return any(viewer.window for viewer in self._by_fd.values() if not viewer.is_client)

    def window(self) -> bytes:
        """Return the largest struct winsize fitting into the windows of all typing viewers; b"" without a window."""
        sizes = [memoryview(viewer.window).cast("H").tolist() for viewer in self._by_fd.values() if viewer.window]
        known = [size for size in sizes if size[0] and size[1]]
        if not known:
            return b""
        rows, columns = min(size[0] for size in known), min(size[1] for size in known)
        x, y = next((size[2:] for size in known if size[:2] == [rows, columns]), (0, 0))
        return packets.winsize((rows, columns, x, y))

    def hear(self, *, on: bool) -> None:
        """Start or stop receiving from the viewers."""
        if on != self._hears:
            self._hears = on
            for viewer in self._by_fd.values():
                self._look(viewer)

    def _add(self, viewer: Viewer) -> None:
        self._by_fd[viewer.sock.fileno()] = viewer
        self._events.register(viewer.sock.fileno(), viewer.waited_for)

    def _look(self, viewer: Viewer) -> None:
        wanted = (select.EPOLLIN if self._hears else 0) | (select.EPOLLOUT if viewer.unread else 0)
        if wanted != viewer.waited_for:
            viewer.waited_for = wanted
            self._events.modify(viewer.sock.fileno(), wanted)

    def show(self, kind: bytes, data: bytes, task: int = 0) -> None:
        """Show bytes of a task's stream to all viewers, and remember the last bytes."""
        for start in range(0, len(data), packets.LONGEST):
            packet = packets.packet(kind, data[start : start + packets.LONGEST], task)
            if self._listener is not None:
                self._remember(packet)
            for viewer in list(self._by_fd.values()):
                self._give(viewer, packet)

    def _remember(self, packet: bytes) -> None:
        self._last.append(packet)
        self._remembered += len(packet)
        while self._remembered - len(self._last[0]) >= _REMEMBERED:
            self._remembered -= len(self._last.popleft())

    def _give(self, viewer: Viewer, packet: bytes) -> None:
        try:
            viewer.add(packet)
            self._look(viewer)
        except OSError:
            self._drop(viewer)

    def serve(self) -> "Iterator[tuple[Viewer, bytes, bytes]]":
        """Serve the viewers. Yields the viewer, kind and data of each received packet."""
        for fd, mask in self._events.poll(0):
            viewer = self._by_fd.get(fd)
            if viewer is not None:
                yield from self._attend(viewer, mask)
            elif self._listener is not None and fd == self._listener.fileno():
                self._welcome(self._listener)

    def _attend(self, viewer: Viewer, mask: int) -> "Iterator[tuple[Viewer, bytes, bytes]]":
        try:
            if mask & select.EPOLLOUT:
                viewer.flush()
                self._look(viewer)
            raw = viewer.sock.recv(_ROOM, _socket.MSG_DONTWAIT) if mask & ~select.EPOLLOUT else None
        except BlockingIOError:
            return
        except OSError:
            raw = b""
        if raw == b"":
            self._drop(viewer)
        elif raw:
            kind, _, data = packets.split(raw)
            if kind == packets.WINDOW and len(data) == packets.WINDOW_SIZE:
                viewer.window = data
            yield viewer, kind, data

    def _welcome(self, listener: "_socket.socket") -> None:
        """Accept a new viewer, and show the last of the earlier output."""
        try:
            fd, _ = listener._accept()  # type: ignore[attr-defined]  # what socket.accept calls, without importing socket
        except OSError:
            return
        os.set_inheritable(fd, False)
        viewer = Viewer(fd)
        self._add(viewer)
        if len(self._by_fd) - self.client_is_there > _MOST:
            self._give(viewer, packets.packet(packets.NOTE, b"%d are attached already, and no more can be" % _MOST))
            self._drop(viewer)
            return
        for packet in self._last:
            self._give(viewer, packet)

    def farewell(self) -> None:
        """Give the attached viewers a moment to read the rest, at the end of the output."""
        end = time.monotonic() + _PATIENCE
        while any(viewer.unread for viewer in self._by_fd.values()) and (left := end - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            if poll.poll(left * 1000):
                for _ in self.serve():
                    pass

    def _drop(self, viewer: Viewer) -> None:
        if self._by_fd.pop(viewer.sock.fileno(), None) is not None:
            self._events.unregister(viewer.sock.fileno())
            if not viewer.is_client:
                viewer.sock.close()
        viewer.unread.clear()
        viewer.size = 0
