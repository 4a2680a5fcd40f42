"""The stepd's connections: pipes to the client that launched it, a socket to the daemon and to the next daemon.

All speak the same interface, org.nodectl.step. The stepd has one thread and never waits for a peer: what cannot be
sent at once is kept, up to a limit, and a peer that does not read is dropped. Over a pipe no descriptor comes, and
nobody but root reaches the step's socket: nothing that a user made is received or closed here.
"""

import _socket
import os
import select

from nodectl import __version__
from nodectl.wire import framing
from nodectl.wire.dispatch import STEP, Call, Refused, Service, error_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_MESSAGE = 65536
_MAX_BACKLOG = 4 << 20
_BACKLOG = 16
_CHUNK = 65536
_LAST_WORDS_MS = 2000


class Link:
    """One connection: `reader` and `writer` are its descriptors, one and the same for a socket. `attached`: it asked
    for events. `launcher`: the client whose going away ends the step.
    """

    __slots__ = ("attached", "inbox", "launcher", "out", "peer", "reader", "waits", "writer")

    def __init__(self, reader: int, writer: int, peer: framing.Peer, *, launcher: bool = False) -> None:
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self.reader = reader
        self.writer = writer
        self.peer = peer
        self.inbox = framing.Inbox(_MAX_MESSAGE)
        self.out = bytearray()
        self.waits = False  # for room to write
        self.attached = launcher
        self.launcher = launcher

    def close(self) -> None:
        """Both ends."""
        os.close(self.reader)
        if self.writer != self.reader:
            os.close(self.writer)


class Links:
    """Every connection of the step. `on_gone` is called when the launching client has left."""

    __slots__ = ("_by_fd", "_listener", "_methods", "_poll", "_service", "on_gone")

    def __init__(
        self, fd: int, poll: "select.poll", methods: "Callable[[], Mapping[str, tuple[object, object]]]"
    ) -> None:
        """`fd`: the step's socket, on which the daemon listens for the stepd until it is there. `methods` is asked when
        somebody calls; most steps end before.
        """
        self._by_fd: dict[int, Link] = {}
        self._poll = poll
        self._methods = methods
        self._service: Service | None = None
        self.on_gone: Callable[[], None] = lambda: None
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self._listener.listen(_BACKLOG)  # again: SO_PEERCRED names who listened last, and that is us now
        self._listener.setblocking(False)
        poll.register(self._listener.fileno(), select.POLLIN)

    def adopt(self, sock: "_socket.socket") -> Link:
        """The daemon's connection that came with the step."""
        peer = framing.peer_of(sock)
        fd = sock.detach()
        link = Link(fd, fd, peer)
        self._add(link)
        return link

    def adopt_launcher(self, orders: int, news: int, uid: int) -> None:
        """The pipes to the client that launched the step."""
        self._add(Link(orders, news, framing.Peer(0, uid, 0), launcher=True))

    def _add(self, link: Link) -> None:
        self._by_fd[link.reader] = self._by_fd[link.writer] = link
        self._poll.register(link.reader, select.POLLIN)

    def handle(self, fd: int, mask: int) -> bool:
        """Serves what poll(2) reported. False when `fd` is none of ours."""
        if fd == self._listener.fileno():
            self._accept()
            return True
        link = self._by_fd.get(fd)
        if link is None:
            return False
        try:
            if mask & select.POLLOUT or fd != link.reader:
                self._flush(link)
            if fd == link.reader and mask & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._read(link)
        except (framing.BrokenWire, OSError):
            self._drop(link)
        return True

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
            self._send(link, reply)

    def broadcast(self, event: "Mapping[str, object]", *, last: bool = False) -> None:
        """One event to everybody attached; the last one ends their calls."""
        reply: dict[str, object] = {"parameters": {"event": event}}
        if not last:
            reply["continues"] = True
        for link in set(self._by_fd.values()):
            if link.attached:
                self._send(link, reply)

    def broadcast_line(self, line: str) -> None:
        """Words for the step's user."""
        self.broadcast({"event": "message", "text": line})

    def _send(self, link: Link, reply: "Mapping[str, object]") -> None:
        link.out += framing.encode(reply)
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
        """This one is told the events to come, if it is still there."""
        if self._by_fd.get(link.reader) is link:
            link.attached = True

    def has_launcher(self) -> bool:
        """True while the client that launched the step is there."""
        return any(link.launcher for link in self._by_fd.values())

    def descriptors(self) -> list[int]:
        """Of the step's connections and of the socket on which they are made."""
        return [self._listener.fileno(), *self._by_fd]

    def drain(self) -> None:
        """At the very end: give what is still unsent a moment, then let go."""
        for link in set(self._by_fd.values()):
            poll = select.poll()
            poll.register(link.writer, select.POLLOUT)
            try:
                while link.out and poll.poll(_LAST_WORDS_MS):
                    del link.out[: os.write(link.writer, link.out)]
            except OSError:
                pass
