"""What the tasks of a part write, on its way to the agent of the client. Runs in the agent of the part's node.

Bytes have places in their stream: what a broken link has lost is sent again. No more is on its way, or kept here, than
the window; then nothing is read, and the tasks wait as they would at a full pipe.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Mapping
from typing import Any

from nodectl.cluster.agent.sent_bytes import SentBytes
from nodectl.cluster.agent.watch import Watch

Send = Callable[[Mapping[str, object], bytes], None]

CHUNK = 65536
LARGEST_WINDOW = 256 << 10
_SMALLEST_WINDOW = 8 << 10
_OF_ALL_NODES = 64 << 20
_LINGER = 0.03  # seconds that the beginning of a line may wait for its end


def window_of(nodes: int) -> int:
    """Bytes of one stream of one node; those of all nodes together are what the client's agent may have to keep."""
    return max(_SMALLEST_WINDOW, min(LARGEST_WINDOW, _OF_ALL_NODES // max(nodes, 1)))


class Outlet:
    """One stream of one part. `fd` is the reading end of its pipe, closed here. `labelled`: lines are never broken by
    others', so the beginning of one waits for the rest. `on_over`: all has arrived, or nobody wants it.
    """

    def __init__(self, fd: int, send: Send, window: int, on_over: Callable[[], None], *, labelled: bool) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._send = send
        self._window = window
        self._on_over = on_over
        self._labelled = labelled
        self._loop = asyncio.get_running_loop()
        self._sent = SentBytes()
        self._taken = 0
        self._rest = b""  # the beginning of a line
        self._linger: asyncio.TimerHandle | None = None
        self._ending = False
        self.over = False
        self._watch = Watch(fd, self._read)
        self._go_on()

    def _room(self) -> int:
        return self._window - (self._sent.end - self._taken) - len(self._rest)

    def _go_on(self) -> None:
        self._watch.want(self._fd >= 0 and self._room() > 0)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, min(CHUNK, self._room()))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
            self._go_on()
        else:
            self._close()

    def _take(self, data: bytes) -> None:
        """Whole lines go at once; the beginning of one a moment later, or when there is too much of it."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        if len(data) - end >= self._window // 2:
            end = len(data)
        self._rest = data[end:]
        if end:
            self._emit(data[:end])
        if self._rest and not self._labelled:
            self._linger = self._loop.call_later(_LINGER, self._take_rest)

    def _take_rest(self) -> None:
        self._linger = None
        rest, self._rest = self._rest, b""
        if rest:
            self._emit(rest)

    def _emit(self, data: bytes) -> None:
        self._send({"at": self._sent.add(data)}, data)

    def heard(self, told: Mapping[str, Any]) -> None:
        """What the client's agent says: `bytes` that were written to the client's stream, `have` that have come;
        `again`: the rest is missing; `gone`: nobody wants more.
        """
        if told.get("gone"):
            self.drop()
            return
        self._taken = max(self._taken, min(int(told["bytes"]), self._sent.end))
        self._sent.forget(self._taken)
        have = min(int(told.get("have", 0)), self._sent.end)
        if told.get("again"):
            self._send_again(have)
        if self._ending and have == self._sent.end:
            self._end()
        else:
            self._go_on()

    def _send_again(self, have: int) -> None:
        for at, piece in self._sent.since(have):
            self._send({"at": at}, piece)
        if self._ending:
            self._send({"at": self._sent.end, "end": True}, b"")

    def finish(self) -> None:
        """The part has ended: what is in the pipe still is all that comes, whoever has its other end."""
        if self._ending or self.over:
            return
        self._ending = True
        self._read_rest()
        self._close()
        if self._sent:
            self._send({"at": self._sent.end, "end": True}, b"")
        else:
            self._end()

    def _read_rest(self) -> None:
        """Without waiting, and no more than a pipe holds: who has its other end may write for ever."""
        left = 0 if self._fd < 0 else fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
        while left > 0:
            try:
                data = os.read(self._fd, CHUNK)
            except OSError:
                return
            if not data:
                return
            self._take(data)
            left -= len(data)

    def ask(self) -> None:
        """A link was broken: says where it stands, and hears what is missing."""
        if not self.over and self._sent:
            self._send({"at": self._sent.end, "end": self._ending}, b"")

    def drop(self) -> None:
        """Nobody reads it any more: who writes is told so by SIGPIPE."""
        self._rest = b""
        self._close()
        self._end()

    def _close(self) -> None:
        if self._fd < 0:
            return
        self._watch.want(False)
        os.close(self._fd)
        self._fd = -1
        if self._linger is not None:
            self._linger.cancel()
        self._take_rest()

    def _end(self) -> None:
        self._sent.clear()
        if not self.over:
            self.over = True
            self._on_over()
