"""The output of a part's tasks, on the way to the client's agent. Runs in the agent of the part's node.

Bytes have places in their stream: bytes lost with a broken link are sent again. At most one window of bytes is on its
way, or kept here; beyond that nothing is read, and the tasks wait as they would at a full pipe.
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
    """Return the window in bytes for a stream of a node. The client's agent may keep the windows of all nodes."""
    return max(_SMALLEST_WINDOW, min(LARGEST_WINDOW, _OF_ALL_NODES // max(nodes, 1)))


class Outlet:
    """An output stream of a part.

    `fd` is the reading end of its pipe, closed here. `labelled`: lines must never be broken by others', so the
    beginning of a line waits for the rest. `on_over` is called when all has arrived, or when the output is unwanted.
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
        """Send whole lines at once; send the beginning of a line a moment later, or at once if too long."""
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
        """Handle a report of the client's agent.

        `bytes`: the count written to the client's stream; `have`: the count received; `again`: the rest is missing;
        `gone`: no more is wanted.
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
        """Send the rest of the pipe at the part's end, even if a process still holds the pipe's writing end."""
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
        """Read without waiting, and no more than a pipe holds: a process with the writing end may write for ever."""
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
        """Report the present place after a broken link, and so learn the missing bytes."""
        if not self.over and self._sent:
            self._send({"at": self._sent.end, "end": self._ending}, b"")

    def drop(self) -> None:
        """Drop the output for want of a reader: a writer gets SIGPIPE."""
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
