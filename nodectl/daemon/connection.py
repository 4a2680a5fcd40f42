"""One client's connection to the daemon: messages in, replies out, descriptors in between.

The event loop calls; nothing here blocks. A client may send what it likes: too long, truncated, not JSON, not a call,
faster than it reads. It gets one clear error where it can be told, and its connection ends where it cannot.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping

from nodectl import wire
from nodectl.daemon import descriptors
from nodectl.interface import NODE, STANDARD, Call, Refused, Service, error_reply

_MAX_BACKLOG = 32 << 20
_MAX_QUEUED = 64
_ONLY_ASK = frozenset(f"{NODE}.{name}" for name in ("List", "Show", "Wait"))  # nothing is lost when nobody listens


class Connection:
    """Serves one peer until it closes. `on_close(connection)` is called once."""

    def __init__(
        self, sock: socket.socket, service: Service, limit: int, on_close: Callable[["Connection"], None]
    ) -> None:
        sock.setblocking(False)
        self.peer = wire.Peer(sock)
        self.peer.hold()
        self._sock = sock
        self._service = service
        self._on_close = on_close
        self._inbox = wire.Inbox(limit)
        self._limit = limit
        self._out = bytearray()
        self._calls: list[tuple[bytes, list[int]]] = []  # as they came: what they mean may be much larger
        self._busy: asyncio.Task[None] | None = None
        self._only_asks = False
        self._held = 1  # the connection, the call that is under way, and each whose descriptors are not closed yet
        self._closed = False
        asyncio.get_running_loop().add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            alive = self._inbox.receive(self._sock)
            while (message := self._inbox.take()) is not None:
                # A read ends with the message that brought descriptors: they are the last one's.
                last = not self._inbox.partial
                self._calls.append((message, self._inbox.take_descriptors() if last else []))
                self._bound()
        except BlockingIOError:
            return
        except wire.BrokenWire as error:
            self._break(error)
            return
        except OSError:
            alive = False
        if not alive:
            self.close()
        elif self._calls and self._busy is None:
            self._next()

    def _bound(self) -> None:
        """What waits behind a call is no more than one message may be. Raises BrokenWire."""
        if len(self._calls) > _MAX_QUEUED:
            raise wire.BrokenWire(f"more than {_MAX_QUEUED} calls without waiting for a reply")
        if len(self._calls) > 1 and sum(len(message) for message, _ in self._calls) > self._limit:
            raise wire.BrokenWire(f"calls of more than {self._limit} bytes without waiting for a reply")
        if sum(len(fds) for _, fds in self._calls) > wire.MAX_DESCRIPTORS:
            raise wire.BrokenWire(f"more than {wire.MAX_DESCRIPTORS} descriptors without waiting for a reply")

    def refuse(self, reason: str) -> None:
        """Ends the connection before anything was asked; what is asked all the same finds the reason for its answer."""
        self._reply(error_reply(Refused("NotPermitted", reason)))
        self.close()

    def _break(self, error: wire.BrokenWire) -> None:
        self._reply(error_reply(Refused(f"{STANDARD}.InvalidParameter", str(error), parameter="message")))
        self.close()

    def _next(self) -> None:
        """Serves the calls in the order they came; while one has to wait, or its reply, those behind it wait too."""
        while self._calls and self._busy is None and not self._out and not self._closed:
            self._begin(*self._calls.pop(0))

    def _begin(self, message: bytes, fds: list[int]) -> None:
        call = None
        self._held += bool(fds)
        try:
            call = Call(wire.decode(message), self.peer, fds)
            result = self._service.find(call)(call)
        except wire.BrokenWire as error:
            self._let_go(fds)
            self._break(error)
            return
        except Exception as error:  # the daemon's door: one caller's trouble is nobody else's
            self._finish(call, fds, _refusal(error))
            return
        if isinstance(result, Awaitable):
            self._held += 1
            self._only_asks = call.method in _ONLY_ASK
            self._busy = asyncio.get_running_loop().create_task(self._wait_for(call, fds, result))
            self._busy.add_done_callback(lambda _: self._released())
        else:
            self._finish(call, fds, {"parameters": result})

    async def _wait_for(self, call: Call, fds: list[int], result: Awaitable[object]) -> None:
        try:
            answer: Mapping[str, object] = {"parameters": await result}
        except asyncio.CancelledError:
            self._let_go(fds)
            raise
        except Exception as error:  # as above
            answer = _refusal(error)
        self._busy = None
        self._finish(call, fds, answer)
        self._next()

    def _finish(self, call: Call | None, fds: list[int], answer: Mapping[str, object]) -> None:
        self._let_go(fds)
        if call is None or not call.oneway:
            self._reply(answer)

    def _reply(self, message: Mapping[str, object]) -> None:
        if self._closed:
            return
        self._out += wire.encode(message)
        if len(self._out) > _MAX_BACKLOG:
            self.close()
            return
        self._flush()

    def _writable(self) -> None:
        self._flush()
        self._next()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._out:
                del self._out[: self._sock.send(self._out, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            loop.add_writer(self._sock.fileno(), self._writable)
            return
        except OSError:
            self.close()
            return
        loop.remove_writer(self._sock.fileno())

    def _let_go(self, fds: list[int]) -> None:
        if fds:
            descriptors.close_aside(fds, self._released)

    def _released(self) -> None:
        self._held -= 1
        if not self._held:
            self._on_close(self)

    def close(self) -> None:
        """Ends the connection; a call that is under way, and does more than ask, goes on without anybody to tell. While
        it does, or descriptors of the user's are not closed, the connection counts: one user could fill the daemon.
        """
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._sock.fileno())
        loop.remove_writer(self._sock.fileno())
        self.peer.let_go()
        # With what is in the socket unread, and what came with it.
        unused = [self._sock.detach(), *self._inbox.take_descriptors(), *(fd for _, fds in self._calls for fd in fds)]
        self._calls.clear()
        if self._busy is not None and self._only_asks:
            self._busy.cancel()
        descriptors.close_aside(unused, self._released)

    def abandon(self) -> list[asyncio.Task[None]]:
        """Ends the connection and what is under way for it; returns what is left to wait for."""
        busy = [] if self._busy is None else [self._busy]
        for task in busy:
            task.cancel()
        self.close()
        return busy


def _refusal(error: Exception) -> Mapping[str, object]:
    if isinstance(error, Refused):
        return error_reply(error)
    asyncio.get_running_loop().call_exception_handler({"message": "a call failed", "exception": error})
    return error_reply(Refused("InternalError", f"{type(error).__name__}: {error}"))
