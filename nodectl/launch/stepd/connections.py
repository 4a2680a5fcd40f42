"""The stepd's connections: pipes to the launching client, sockets to the daemon and to a later daemon.

All speak the interface org.nodectl.step. The stepd has one thread and never waits for a peer. Data that cannot be sent
at once is kept, up to a limit; a peer that does not read is dropped. No descriptor can come over a pipe, and only root
can reach the step's socket: so the stepd neither receives nor closes here anything made by a user.
"""

import _socket
import os
import select
import time

from nodectl import __version__
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import STEP, Call, Refused, Service, error_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_MESSAGE = 65536
_MAX_BACKLOG = 4 << 20
_BACKLOG = 16
_CHUNK = 65536
_DRAIN_SECONDS = 2.0  # for each peer that reads, however slowly


class Link:
    """A connection of the step.

    `reader` and `writer` are its descriptors, the same one for a socket. `attached`: the peer gets events. `launcher`:
    the connection belongs to the client that launched the step; when this client goes away, the step ends.
    """

    __slots__ = ("attached", "inbox", "launcher", "out", "peer", "reader", "waits", "writer")

    def __init__(
        self, reader: int, writer: int, peer: framing.Peer, *, launcher: bool = False, longest: int = MAX_MESSAGE
    ) -> None:
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self.reader = reader
        self.writer = writer
        self.peer = peer
        self.inbox = framing.Inbox(longest)
        self.out = bytearray()
        self.waits = False  # for room to write
        self.attached = launcher
        self.launcher = launcher

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        if self.writer != self.reader:
            os.close(self.writer)


class Links:
    """All connections of the step.

    `on_gone` is called when the launching client has left, `on_line` with each line that is sent to the step's user.
    """

    __slots__ = ("_by_fd", "_listener", "_methods", "_poll", "_service", "on_gone", "on_line")

    def __init__(
        self, fd: int, poll: "select.poll", methods: "Callable[[], Mapping[str, tuple[object, object]]]"
    ) -> None:
        """Listen on the step's socket `fd`, on which the daemon listened until the stepd started.

        `methods` is called at the first call of a method; most steps end before one.
        """
        self._by_fd: dict[int, Link] = {}
        self._poll = poll
        self._methods = methods
        self._service: Service | None = None
        self.on_gone: Callable[[], None] = lambda: None
        self.on_line: Callable[[str], object] = str
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self._listener.listen(_BACKLOG)  # again: SO_PEERCRED names the process that listened last
        self._listener.setblocking(False)
        poll.register(self._listener.fileno(), select.POLLIN)

    def adopt(self, sock: "_socket.socket") -> Link:
        """Serve the daemon's connection handed over with the step."""
        peer = framing.peer_of(sock)
        fd = sock.detach()
        link = Link(fd, fd, peer)
        self._add(link)
        return link

    def adopt_launcher(self, orders: int, news: int, uid: int, longest: int = MAX_MESSAGE) -> None:
        """Serve the pipes to the launching client; `longest` limits a message of the client, in bytes."""
        self._add(Link(orders, news, framing.Peer(0, uid, 0), launcher=True, longest=longest))

    def _add(self, link: Link) -> None:
        self._by_fd[link.reader] = self._by_fd[link.writer] = link
        self._poll.register(link.reader, select.POLLIN)

    def handle(self, fd: int, mask: int) -> None:
        """Serve an event of poll(2)."""
        if fd == self._listener.fileno():
            self._accept()
            return
        link = self._by_fd.get(fd)
        if link is None:
            return
        try:
            if mask & select.POLLOUT or fd != link.reader:
                self._flush(link)
            if fd == link.reader and mask & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._read(link)
        except (framing.BrokenWire, OSError):
            self._drop(link)

    def _accept(self) -> None:
        try:
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # what socket.accept calls, without importing socket
        except OSError:
            return
        os.set_inheritable(fd, False)
        self.adopt(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd))

    def _read(self, link: Link) -> None:
        try:
            data = os.read(link.reader, _CHUNK)
        except BlockingIOError:
            return
        link.inbox.feed(data)
        while link.reader in self._by_fd and (message := link.inbox.next()) is not None:
            self._answer(link, message)
        if not data:
            self._drop(link)

    def _answer(self, link: Link, message: "Mapping[str, object]") -> None:
        if self._service is None:
            self._service = Service(__version__, self._methods())  # type: ignore[arg-type]  # the table says what it holds
        service = self._service
        try:
            call = Call(message, link.peer)
            if call.method == f"{STEP}.Attach":
                if not call.more:
                    raise Refused(
                        "org.varlink.service.InvalidParameter", "Attach is called with more", parameter="more"
                    )
                service.find(call)(call)
                link.attached = True
                return
            reply = {"parameters": service.find(call)(call)}
        except Refused as refused:
            reply = dict(error_reply(refused))
            call = None
        if call is None or not call.oneway:
            self._send(link, framing.encode(reply))

    def broadcast(self, event: "Mapping[str, object]") -> None:
        """Send an event to every attached peer."""
        self._to_attached(_continued(event))

    def broadcast_end(self, record: str) -> None:
        """Send the event that ends the calls of the attached peers, with the step's record, which is JSON already."""
        self._to_attached(f'{{"parameters":{{"event":{{"event":"end","record":{record}}}}}}}\0'.encode("ascii"))

    def _to_attached(self, data: bytes) -> None:
        for link in set(self._by_fd.values()):
            if link.attached:
                self._send(link, data)

    def tell_launcher(self, event: "Mapping[str, object]") -> None:
        """Send an event only to the launching client."""
        for link in set(self._by_fd.values()):
            if link.launcher:
                self._send(link, _continued(event))

    def tell_daemon(self, event: "Mapping[str, object]") -> None:
        """Send an event only to the daemon, even if the daemon has not asked for events."""
        for link in set(self._by_fd.values()):
            if not link.launcher:
                self._send(link, _continued(event))

    def launcher_backlog(self) -> int:
        """Return the bytes kept for the launching client, for lack of room in the client's pipe."""
        return sum(len(link.out) for link in set(self._by_fd.values()) if link.launcher)

    def broadcast_line(self, line: str) -> None:
        """Send a line to the step's user."""
        self.on_line(line)
        self.broadcast({"event": "message", "text": line})

    def _send(self, link: Link, data: bytes) -> None:
        if self._by_fd.get(link.reader) is not link:
            return  # dropped while its call was served: its descriptors may be another file's by now
        link.out += data
        try:
            self._flush(link)
            if len(link.out) > _MAX_BACKLOG:
                self._drop(link)
        except OSError:
            self._drop(link)

    def _flush(self, link: Link) -> None:
        try:
            while link.out:
                del link.out[: os.write(link.writer, link.out)]
        except BlockingIOError:
            pass
        waits = bool(link.out)
        if waits == link.waits:
            return
        link.waits = waits
        if link.writer == link.reader:
            self._poll.modify(link.reader, select.POLLIN | (select.POLLOUT if waits else 0))
        elif waits:
            self._poll.register(link.writer, select.POLLOUT)
        else:
            self._poll.unregister(link.writer)

    def _drop(self, link: Link) -> None:
        if self._by_fd.pop(link.reader, None) is None:
            return
        self._by_fd.pop(link.writer, None)
        self._poll.unregister(link.reader)
        if link.waits and link.writer != link.reader:
            self._poll.unregister(link.writer)
        link.close()
        if link.launcher:
            self.on_gone()

    def attach(self, link: Link) -> None:
        """Send events to this peer from now on, if the peer is still connected."""
        if self._by_fd.get(link.reader) is link:
            link.attached = True

    def has_launcher(self) -> bool:
        """Return True while the launching client is connected."""
        return any(link.launcher for link in self._by_fd.values())

    def readers(self) -> list[int]:
        """Return the descriptors on which peers and new connections are heard."""
        return [self._listener.fileno(), *{link.reader for link in self._by_fd.values()}]

    def has_unsent(self) -> bool:
        """Return True while something waits for room to be written to a peer."""
        return any(link.waits for link in self._by_fd.values())

    def descriptors(self) -> list[int]:
        """Return the descriptors of the step's connections and of the listening socket."""
        return [self._listener.fileno(), *self._by_fd]

    def close(self) -> None:
        """Close all connections and the listening socket. The daemon sees by this the end of the step."""
        for link in set(self._by_fd.values()):
            link.close()
        self._by_fd.clear()
        self._listener.close()

    def drain(self) -> None:
        """Send the unsent rest to each peer, for at most 2 seconds each, at the end of the step."""
        for link in set(self._by_fd.values()):
            poll = select.poll()
            poll.register(link.writer, select.POLLOUT)
            end = time.monotonic() + _DRAIN_SECONDS
            try:
                while link.out and poll.poll(max(0.0, end - time.monotonic()) * 1000):
                    del link.out[: os.write(link.writer, link.out)]
            except OSError:
                pass


def _continued(event: "Mapping[str, object]") -> bytes:
    return framing.encode({"parameters": {"event": event}, "continues": True})
