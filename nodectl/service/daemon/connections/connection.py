"""The daemon's side of a session process and of the user's connections: receives calls, sends replies and descriptors.

The listener starts one session process for each user. It sends calls through a pipe, one of each connection at a time,
and has bounded and parsed them once. The daemon relies on that only for the cost of reading them, and drops a session
process that breaks these rules. In each turn of the event loop the daemon serves one call of each session process, so a
user waits for at most one call of each other user.
"""

import asyncio
import errno
import functools
import gc
import os
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence

from nodectl import messages
from nodectl.model.wire import frames, framing
from nodectl.model.wire.dispatch import NODE, Call, Refused, Service, error_reply

_MAX_BACKLOG = 32 << 20
_SMALL = 64 << 10  # bytes of a reply for which there is always room
_MOST_OF_SMALL = 16 << 20
_CHUNK = 65536
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_MOST_PROVEN = 1024  # connections of a session process with a pidfd each; further ones have no proof of their process
_ONLY_ASK = frozenset(
    f"{NODE}.{name}" for name in ("List", "Show", "Wait", "Await", "Queue", "ShowJob", "Usage")
)  # read-only calls: nothing is lost when the client has gone


class CallCounts:
    """The count of each user's calls under way, a bound on the calls of a single user."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count: dict[int, int] = {}

    def begin(self, uid: int) -> None:
        """Count a call of the user. Raises Refused."""
        count = self._count.get(uid, 0)
        if uid != 0 and count >= self._most:
            raise Refused("NotPermitted", f"more calls of yours than max_connections_per_user = {self._most}")
        self._count[uid] = count + 1

    def end(self, uid: int) -> None:
        """Uncount a finished call of the user."""
        self._count[uid] -= 1
        if not self._count[uid]:
            del self._count[uid]


class Connection:
    """A client's connection, with at most a single call under way."""

    def __init__(self, session: "SessionChannel", number: int, peer: framing.Peer) -> None:
        self.peer = peer
        self.busy: asyncio.Future[object] | None = None
        self._session = session
        self._number = number
        self._call: Call | None = None  # the call under way
        self._only_asks = False
        self._gone = False

    def begin(self, text: bytes, fds: int) -> None:
        """Serve a call."""
        call = None
        try:
            call = Call(_decoded(text), self.peer, fds, self._hand_over)
            result = self._session.service.find(call)(call)
        except Exception as error:  # one caller's failure must not reach others
            self._finish(call, _refusal(error))
            return
        if not isinstance(result, Awaitable):
            self._finish(call, {"parameters": result})
            return
        try:
            self._session.calls.begin(self.peer.uid)
        except Refused as refused:
            asyncio.ensure_future(result).cancel()
            self._finish(call, error_reply(refused))
            return
        self._call = call
        self._only_asks = call.method in _ONLY_ASK
        self.busy = asyncio.ensure_future(result)
        self.busy.add_done_callback(functools.partial(self._end, call))  # also for a call cancelled before its start

    def _end(self, call: Call, done: asyncio.Future[object]) -> None:
        answer: Mapping[str, object] = {}
        if not done.cancelled():
            error = done.exception()
            answer = _refusal(error) if isinstance(error, Exception) else {"parameters": done.result()}
        self.busy = self._call = None
        self._session.calls.end(self.peer.uid)
        self._finish(call, answer)  # in any case: the session process keeps descriptors until then

    def _hand_over(self, answer: Mapping[str, object], ours: Sequence[int]) -> None:
        self._session.send(self._number, frames.HAND, _text({"parameters": answer}), ours)

    def _finish(self, call: Call | None, answer: Mapping[str, object]) -> None:
        wanted = answer and (call is None or not call.oneway)
        text = _text(answer) if wanted else b""
        if len(text) > _SMALL and (why := self._session.has_no_room(len(text))):
            text = _text(error_reply(Refused("TooLarge", why)))
        send = functools.partial(self._session.send, self._number, frames.REPLY, text)
        if call is None:
            send()
        else:
            call.reply_with(send)
        if self._gone:
            self._session.forget(self._number)

    def withdraw(self) -> None:
        """Withdraw the launch under way, and tell the client at once, unless the launch is answered."""
        if self.busy is not None and self._call is not None and not self._call.withdrawn:
            self._call.withdrawn = True
            self._session.send(self._number, frames.WITHDRAWN)

    def leave(self) -> None:
        """Handle the client's close. A call under way goes on, unless the call changes nothing."""
        self._gone = True
        if self.busy is None:
            self._session.forget(self._number)
        elif self._only_asks:
            self.busy.cancel()


class SessionChannel:
    """A session process of a user, as seen by the daemon.

    `catch_up()` reads the listener's news, which announces a connection before its session process uses it.
    `on_end(session)` is called once. Raises OSError; then the caller still owns both descriptors.
    """

    def __init__(  # everything of a session process
        self, uid: int, up: int, down: int, service: Service, calls: CallCounts, longest: int,
        catch_up: Callable[[], None], on_end: Callable[["SessionChannel"], None],
    ) -> None:  # fmt: skip
        os.set_blocking(up, False)
        os.set_blocking(down, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(up, self._readable)
        self._reads = True  # only while no received frame is unserved
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
        self._is_full = False  # the socket is full: `_out` waits for room
        self._size = 0
        self._connections: dict[int, Connection] = {}
        self._closed = False

    def add(self, number: int, peer: framing.Peer) -> None:
        """Add a connection of the session process."""
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
        """Serve a single frame. Later turns of the event loop serve further frames; until then nothing more is read."""
        if self._closed:
            return
        try:
            data = self._inbox.take()
            if data is not None:
                self._take(*frames.split(data))
        except (framing.BrokenWire, frames.BrokenFrame, KeyError, ValueError) as error:
            self._loop.call_exception_handler({"message": f"a session broke its rules: {error!r}"})
            self.close()
            return
        if self._closed:  # by the reply: the descriptor may be reused by now
            return
        try:
            self._read_on(data is None or self._inbox.size == 0)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Close the channels, because the system refuses to watch them: else the users' calls would wait for ever."""
        words = f"serve the connections of uid {self.uid}: {error.strerror}"
        messages.tell("session-not-opened", words, uid=self.uid)
        self.close()

    def _read_on(self, on: bool) -> None:
        """Read on, or first serve the frames already received."""
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
        """Return why a reply of `size` bytes is not sent, or "" if there is room."""
        if size > _MAX_BACKLOG:
            return f"the reply has {size} bytes, and may have {_MAX_BACKLOG}"
        if self._size + size > _MAX_BACKLOG:
            return f"the reply has {size} bytes, and others of yours are not read"
        return ""

    def send(self, number: int, word: bytes, text: bytes = b"", fds: Sequence[int] = ()) -> None:
        """Queue a frame. `fds` are closed once sent."""
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
                self._wait_for_room()
            return
        except OSError:
            self.close()
            return
        if self._is_full:
            self._is_full = False
            self._loop.remove_writer(self._down.fileno())

    def _wait_for_room(self) -> None:
        try:
            self._loop.add_writer(self._down.fileno(), self._flush)
            self._is_full = True
        except OSError as error:
            self._fail(error)

    def forget(self, number: int) -> None:
        """Forget a finished connection."""
        connection = self._connections.pop(number, None)
        if connection is not None:
            connection.peer.let_go()

    def close(self) -> None:
        """Close the channels. Calls under way go on without a reply; calls which change nothing are cancelled."""
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
        """Cancel all calls and close the channels. Return the cancelled calls, to be waited for."""
        busy = [connection.busy for connection in self._connections.values() if connection.busy is not None]
        for task in busy:
            task.cancel()
        self.close()
        return busy


def _decoded(text: bytes) -> Mapping[str, object]:
    """Decode a call without the garbage collector, which would look through millions of empty lists repeatedly."""
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
    if isinstance(error, sqlite3.Error):  # with the remedy in its text; the log has the error already
        return error_reply(Refused("InternalError", f"the history cannot be used: {error}"))
    asyncio.get_running_loop().call_exception_handler({"message": "a call failed", "exception": error})
    if isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR:  # the call itself is right, and may be repeated
        return error_reply(Refused("InternalError", f"the service cannot open a file now: {error.strerror}"))
    return error_reply(Refused("InternalError", f"{type(error).__name__}: {error}"))
