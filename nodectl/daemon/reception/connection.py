"""A user's desk and its connections, as the daemon sees them: calls come in, replies and descriptors go out.

A desk is the reception's process for one user. It sends calls through a pipe, one of each connection at a time; it has
bounded and parsed them once. The daemon relies on that only for the cost of reading them, and drops a desk that breaks
these rules. In each turn of the event loop it serves one call of each desk, so that a user waits for no more than one
call of each other user.
"""

import asyncio
import functools
import gc
import os
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence

from nodectl.wire import frames, framing
from nodectl.wire.dispatch import NODE, Call, Refused, Service, error_reply

_MAX_BACKLOG = 32 << 20
_SMALL = 64 << 10  # bytes of a reply for which there is always room
_MOST_OF_SMALL = 16 << 20
_CHUNK = 65536
_MOST_PROVEN = 1024  # connections of a desk with a pidfd each: further ones of its user prove nothing
_ONLY_ASK = frozenset(
    f"{NODE}.{name}" for name in ("List", "Show", "Wait", "Await", "Queue", "ShowJob", "Usage")
)  # they change nothing: nothing is lost when the client has gone


class Calls:
    """Counts each user's calls that are under way, so that one user cannot fill the daemon with them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count: dict[int, int] = {}

    def begin(self, uid: int) -> None:
        """Raises Refused."""
        count = self._count.get(uid, 0)
        if uid != 0 and count >= self._most:
            raise Refused("NotPermitted", f"more calls of yours than max_connections_per_user = {self._most}")
        self._count[uid] = count + 1

    def end(self, uid: int) -> None:
        """One of them is over."""
        self._count[uid] -= 1
        if not self._count[uid]:
            del self._count[uid]


class Connection:
    """One client's calls, one at a time."""

    def __init__(self, desk: "Desk", number: int, peer: framing.Peer) -> None:
        self.peer = peer
        self.busy: asyncio.Future[object] | None = None
        self._desk = desk
        self._number = number
        self._call: Call | None = None  # that is under way
        self._only_asks = False
        self._gone = False

    def begin(self, text: bytes, fds: int) -> None:
        """Serves a call."""
        call = None
        try:
            call = Call(_decoded(text), self.peer, fds, self._hand_over)
            result = self._desk.service.find(call)(call)
        except Exception as error:  # one caller's failure must not reach others
            self._finish(call, _refusal(error))
            return
        if not isinstance(result, Awaitable):
            self._finish(call, {"parameters": result})
            return
        try:
            self._desk.calls.begin(self.peer.uid)
        except Refused as refused:
            asyncio.ensure_future(result).cancel()
            self._finish(call, error_reply(refused))
            return
        self._call = call
        self._only_asks = call.method in _ONLY_ASK
        self.busy = asyncio.ensure_future(result)
        self.busy.add_done_callback(functools.partial(self._end, call))  # also of one cancelled before it began

    def _end(self, call: Call, done: asyncio.Future[object]) -> None:
        answer: Mapping[str, object] = {}
        if not done.cancelled():
            error = done.exception()
            answer = _refusal(error) if isinstance(error, Exception) else {"parameters": done.result()}
        self.busy = self._call = None
        self._desk.calls.end(self.peer.uid)
        self._finish(call, answer)  # in any case: its desk keeps descriptors until then

    def _hand_over(self, answer: Mapping[str, object], ours: Sequence[int]) -> None:
        self._desk.send(self._number, frames.HAND, _text({"parameters": answer}), ours)

    def _finish(self, call: Call | None, answer: Mapping[str, object]) -> None:
        wanted = answer and (call is None or not call.oneway)
        text = _text(answer) if wanted else b""
        if len(text) > _SMALL and (why := self._desk.has_no_room(len(text))):
            text = _text(error_reply(Refused("TooLarge", why)))
        send = functools.partial(self._desk.send, self._number, frames.REPLY, text)
        if call is None:
            send()
        else:
            call.reply_with(send)
        if self._gone:
            self._desk.forget(self._number)

    def withdraw(self) -> None:
        """The client wants the launch that is under way no more. It is told at once, unless it has its answer."""
        if self.busy is not None and self._call is not None and not self._call.withdrawn:
            self._call.withdrawn = True
            self._desk.send(self._number, frames.WITHDRAWN)

    def leave(self) -> None:
        """The client has closed. A call that is under way goes on, unless it only asks."""
        self._gone = True
        if self.busy is None:
            self._desk.forget(self._number)
        elif self._only_asks:
            self.busy.cancel()


class Desk:
    """One desk. `catch_up()` reads the reception's news, which tells of a connection before its desk uses it.
    `on_end(desk)` is called once. Raises OSError; then both descriptors are still its maker's.
    """

    def __init__(  # both ends, and what is behind
        self, uid: int, up: int, down: int, service: Service, calls: Calls, longest: int,
        catch_up: Callable[[], None], on_end: Callable[["Desk"], None],
    ) -> None:  # fmt: skip
        os.set_blocking(up, False)
        os.set_blocking(down, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(up, self._readable)
        self._reads = True  # and not before all that it has read is served
        try:
            self._down = socket.socket(fileno=down)
        except OSError:
            self._loop.remove_reader(up)
            raise
        self.uid = uid
        self.service = service
        self.calls = calls
        self._up = up
        self._catch_up = catch_up
        self._on_end = on_end
        self._inbox = framing.Inbox(longest + frames.LONGEST_HEAD)
        self._out: list[tuple[bytearray, list[int]]] = []
        self._is_full = False  # the socket: what is in `_out` waits for room
        self._size = 0
        self._connections: dict[int, Connection] = {}
        self._closed = False

    def add(self, number: int, peer: framing.Peer) -> None:
        """Adds a connection, whose calls will come."""
        if self._closed or (self.uid and len(self._connections) >= _MOST_PROVEN):
            peer.let_go()
        if not self._closed:
            self._connections[number] = Connection(self, number, peer)

    def _readable(self) -> None:
        try:
            data = os.read(self._up, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._inbox.feed(data)
        self._serve()

    def _serve(self) -> None:
        """Serves one frame. Others that have come are served in the next turns; until then nothing more is read."""
        if self._closed:
            return
        try:
            data = self._inbox.take()
            if data is not None:
                self._take(*frames.split(data))
        except (framing.BrokenWire, frames.BrokenFrame, KeyError, ValueError) as error:
            self._loop.call_exception_handler({"message": f"a desk broke its rules: {error!r}"})
            self.close()
            return
        if not self._closed:  # the reply may have closed it: the descriptor may be another's by now
            self._read_on(data is None or self._inbox.size == 0)

    def _read_on(self, on: bool) -> None:
        """Goes on reading, or first serves what has come."""
        if not on:
            self._loop.call_soon(self._serve)
        if on == self._reads:
            return
        self._reads = on
        if on:
            self._loop.add_reader(self._up, self._readable)
        else:
            self._loop.remove_reader(self._up)

    def _take(self, number: int, word: bytes, text: bytes) -> None:
        if number not in self._connections:
            self._catch_up()
        connection = self._connections[number]
        if word == frames.GONE:
            connection.leave()
            return
        if word == frames.WITHDRAW:
            connection.withdraw()
            return
        fds, _, call = text.partition(b" ")
        if (
            word != frames.CALL
            or connection.busy is not None
            or not fds.isdigit()
            or int(fds) > framing.MAX_DESCRIPTORS
        ):
            raise frames.BrokenFrame(f"{word!r} out of place")
        connection.begin(call, int(fds))

    def has_no_room(self, size: int) -> str:
        """Why a reply of so many bytes is not sent; "" when it is."""
        if size > _MAX_BACKLOG:
            return f"the reply has {size} bytes, and may have {_MAX_BACKLOG}"
        if self._size + size > _MAX_BACKLOG:
            return f"the reply has {size} bytes, and others of yours are not read"
        return ""

    def send(self, number: int, word: bytes, text: bytes = b"", fds: Sequence[int] = ()) -> None:
        """Queues a frame. `fds` are closed when they have been sent."""
        if self._closed:
            framing.close(fds)
            return
        data = bytearray(frames.frame(number, word, text))
        self._out.append((data, list(fds)))
        self._size += len(data)
        if self._size > _MAX_BACKLOG + _MOST_OF_SMALL:
            self.close()  # its clients read nothing
        elif len(self._out) == 1:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._out:
                data, fds = self._out[0]
                sent = framing.send_some(self._down, data, fds)
                framing.close(fds)
                fds.clear()
                del data[:sent]
                self._size -= sent
                if not data:
                    del self._out[0]
        except BlockingIOError:
            if not self._is_full:
                self._is_full = True
                self._loop.add_writer(self._down.fileno(), self._flush)
            return
        except OSError:
            self.close()
            return
        if self._is_full:
            self._is_full = False
            self._loop.remove_writer(self._down.fileno())

    def forget(self, number: int) -> None:
        """That connection is over."""
        connection = self._connections.pop(number, None)
        if connection is not None:
            connection.peer.let_go()

    def close(self) -> None:
        """Ends it. Calls that are under way go on without a reply, unless they only ask."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._up)
        self._loop.remove_writer(self._down.fileno())
        os.close(self._up)
        self._down.close()
        for _, fds in self._out:
            framing.close(fds)
        self._out.clear()
        for connection in list(self._connections.values()):
            connection.leave()
        self._on_end(self)

    def abandon(self) -> list[asyncio.Future[object]]:
        """Ends it and cancels its calls. Returns what is left to wait for."""
        busy = [connection.busy for connection in self._connections.values() if connection.busy is not None]
        for task in busy:
            task.cancel()
        self.close()
        return busy


def _decoded(text: bytes) -> Mapping[str, object]:
    """Decodes without the garbage collector, which would go through millions of empty lists again and again."""
    gc.disable()
    try:
        return framing.decode_call(text)
    finally:
        gc.enable()


def _text(answer: Mapping[str, object]) -> bytes:
    return framing.encode(answer)[:-1]


def _refusal(error: Exception) -> Mapping[str, object]:
    if isinstance(error, Refused):
        return error_reply(error)
    if isinstance(error, sqlite3.Error):  # which says what to do; the log has it already
        return error_reply(Refused("InternalError", f"the history cannot be used: {error}"))
    asyncio.get_running_loop().call_exception_handler({"message": "a call failed", "exception": error})
    return error_reply(Refused("InternalError", f"{type(error).__name__}: {error}"))
