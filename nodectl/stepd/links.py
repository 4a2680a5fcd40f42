"""The stepd's connections: the launching client's, the daemon's, and whoever comes over the step's own socket.

All speak the same interface, org.nodectl.step. The stepd has one thread and never waits for a peer: what cannot be
sent at once is kept, up to a limit, and a peer that does not read is dropped.
"""

import _socket
import os
import select

from nodectl import __version__, wire
from nodectl.interface import STEP, Call, Refused, Service, error_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_MESSAGE = 65536
_MAX_BACKLOG = 4 << 20
_BACKLOG = 16
_MAX_LINKS = 64


class Link:
    """One connection. `attached`: it asked for events. `launcher`: the client whose going away ends the step."""

    __slots__ = ("attached", "inbox", "launcher", "out", "peer", "sock")

    def __init__(self, sock: "_socket.socket", *, launcher: bool = False) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.peer = wire.Peer(sock)
        self.inbox = wire.Inbox(_MAX_MESSAGE)
        self.out = bytearray()
        self.attached = False
        self.launcher = launcher


class Links:
    """Every connection of the step. `on_gone` is called when the launching client has left."""

    __slots__ = ("_by_fd", "_listener", "_owner", "_poll", "_service", "on_gone")

    def __init__(
        self, fd: int, owner: int, poll: "select.poll", methods: "Mapping[str, tuple[object, object]]"
    ) -> None:
        """`fd`: the step's socket, on which the daemon listens for the stepd until it is there."""
        self._owner = owner
        self._by_fd: dict[int, Link] = {}
        self._poll = poll
        self._service = Service(__version__, methods)  # type: ignore[arg-type]  # the table says what it holds
        self.on_gone: Callable[[], None] = lambda: None
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self._listener.listen(_BACKLOG)  # again: SO_PEERCRED names who listened last, and that is us now
        self._listener.setblocking(False)
        poll.register(self._listener.fileno(), select.POLLIN)

    def adopt(self, sock: "_socket.socket", *, launcher: bool = False) -> None:
        """A connection that came with the step."""
        self._add(Link(sock, launcher=launcher))

    def _add(self, link: Link) -> None:
        self._by_fd[link.sock.fileno()] = link
        self._poll.register(link.sock.fileno(), select.POLLIN)

    def handle(self, fd: int, mask: int) -> bool:
        """Serves what poll(2) reported. False when `fd` is none of ours."""
        if fd == self._listener.fileno():
            self._accept()
            return True
        link = self._by_fd.get(fd)
        if link is None:
            return False
        try:
            if mask & select.POLLOUT:
                self._flush(link)
            if mask & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._read(link)
        except (wire.BrokenWire, OSError):
            self._drop(link)
        return True

    def _accept(self) -> None:
        try:
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # what socket.accept calls, without importing socket
        except OSError:
            return
        os.set_inheritable(fd, False)
        link = Link(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd))
        # Others are shown out at once, and the owner's connections are counted: root must always find room.
        if link.peer.uid not in (0, self._owner):
            self._refuse(link, "this step belongs to another user")
        elif link.peer.uid != 0 and len(self._by_fd) >= _MAX_LINKS:
            self._refuse(link, f"this step has {_MAX_LINKS} connections already")
        else:
            self._add(link)

    @staticmethod
    def _refuse(link: Link, why: str) -> None:
        try:
            link.sock.send(wire.encode(error_reply(Refused(f"{STEP}.NotPermitted", why))), _socket.MSG_NOSIGNAL)
        except OSError:
            pass  # gone already
        link.sock.close()

    def _read(self, link: Link) -> None:
        try:
            alive = link.inbox.receive(link.sock)
        except BlockingIOError:
            return
        link.inbox.close()  # a step takes no descriptors from anybody
        while link.sock.fileno() >= 0 and (message := link.inbox.next()) is not None:
            self._answer(link, message)
        if not alive:
            self._drop(link)

    def _answer(self, link: Link, message: "Mapping[str, object]") -> None:
        try:
            call = Call(message, link.peer, [])
            if call.method == f"{STEP}.Attach":
                if not call.more:
                    raise Refused(
                        "org.varlink.service.InvalidParameter", "Attach is called with more", parameter="more"
                    )
                self._service.find(call)(call)
                link.attached = True
                return
            reply = {"parameters": self._service.find(call)(call)}
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
        for link in list(self._by_fd.values()):
            if link.attached:
                self._send(link, reply)

    def _send(self, link: Link, reply: "Mapping[str, object]") -> None:
        link.out += wire.encode(reply)
        try:
            self._flush(link)
            if len(link.out) > _MAX_BACKLOG:
                self._drop(link)
        except OSError:
            self._drop(link)

    def _flush(self, link: Link) -> None:
        try:
            while link.out:
                del link.out[: link.sock.send(link.out, _socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            pass
        interest = select.POLLIN | (select.POLLOUT if link.out else 0)
        self._poll.modify(link.sock.fileno(), interest)

    def _drop(self, link: Link) -> None:
        fd = link.sock.fileno()
        if self._by_fd.pop(fd, None) is None:
            return
        self._poll.unregister(fd)
        link.inbox.close()
        link.sock.close()
        if link.launcher:
            self.on_gone()

    def attach(self, sock: "_socket.socket") -> None:
        """One that came with the step is told the events to come, if it is still there."""
        link = self._by_fd.get(sock.fileno())
        if link is not None:
            link.attached = True

    def has_launcher(self) -> bool:
        """True while the client that launched the step is there."""
        return any(link.launcher for link in self._by_fd.values())

    def close_in_child(self) -> None:
        """In a task: the step's connections are none of its business."""
        self._listener.close()
        for link in self._by_fd.values():
            link.sock.close()

    def drain(self) -> None:
        """At the very end: give what is still unsent a moment, then let go."""
        for link in list(self._by_fd.values()):
            if link.out:
                link.sock.settimeout(2.0)
                try:
                    link.sock.sendall(link.out)
                except OSError:
                    pass
