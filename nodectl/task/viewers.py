"""Who sees a step's streams in the process that copies them: the client that launched the step. Runs as the step's
user.

Viewers are sockets, and none is waited for.
"""

import _socket
import select
from collections import deque

from nodectl.wire import terminal_packets as packets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOM = packets.HEAD + packets.LONGEST


class _Viewer:
    """One of them; `unread` are packets for which its socket has no room."""

    __slots__ = ("sock", "unread")

    def __init__(self, fd: int) -> None:
        self.sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)
        self.unread: deque[bytes] = deque()

    def flush(self) -> None:
        """Sends what there is room for. Raises OSError."""
        try:
            while self.unread:
                self.sock.send(self.unread[0], _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
                self.unread.popleft()
        except BlockingIOError:
            pass


class Viewers:
    """All of them, by their sockets."""

    def __init__(self, client: int) -> None:
        self._client = _Viewer(client)
        self._by_fd = {client: self._client}

    @property
    def client_is_there(self) -> bool:
        """False when the client that launched the step has gone."""
        return self._client.sock.fileno() in self._by_fd

    @property
    def unread(self) -> bool:
        """True while the client has not read everything."""
        return bool(self._client.unread)

    @property
    def have_room(self) -> bool:
        """True where more may be shown: the client has read all."""
        return not self._client.unread

    def register(self, poll: "select.poll", *, heard: bool) -> None:
        """`heard`: what they send can be taken."""
        for fd, viewer in self._by_fd.items():
            poll.register(fd, (select.POLLIN if heard else 0) | (select.POLLOUT if viewer.unread else 0))

    def show(self, kind: bytes, data: bytes, task: int = 0) -> None:
        """Shows these bytes of a task's stream to all."""
        packet = packets.packet(kind, data, task)
        for viewer in list(self._by_fd.values()):
            viewer.unread.append(packet)
            self._flush(viewer)

    def handle(self, fd: int, mask: int) -> "Iterator[tuple[bytes, bytes]]":
        """Serves one; yields what it has sent: kind and data."""
        viewer = self._by_fd.get(fd)
        if viewer is None:
            return
        if mask & select.POLLOUT:
            self._flush(viewer)
        if not mask & ~select.POLLOUT or fd not in self._by_fd:
            return
        try:
            raw = viewer.sock.recv(_ROOM, _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            raw = b""
        if not raw:
            self._drop(viewer)
            return
        kind, _, data = packets.split(raw)
        yield kind, data

    def _flush(self, viewer: _Viewer) -> None:
        try:
            viewer.flush()
        except OSError:
            self._drop(viewer)

    def _drop(self, viewer: _Viewer) -> None:
        self._by_fd.pop(viewer.sock.fileno(), None)
        viewer.unread.clear()
