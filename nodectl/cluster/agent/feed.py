"""A client's standard input, on its way to all nodes of its step, and into the tasks there.

The slowest node that reads sets the pace. A node whose tasks have closed their input is left out from then on; one
whose tasks do not read at all keeps the input standing, and nothing else: the end of a step never waits for it.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodectl.cluster.agent import copier
from nodectl.cluster.agent.sinks import open_anew

_WINDOW = 512 << 10
_CHUNK = 64 << 10

Send = Callable[[Iterable[int], Mapping[str, object], bytes], None]


class Feed:
    """In the client's agent: reads `fd`, which is closed here. `send` sends to nodes by their ranks."""

    def __init__(self, fd: int, ranks: Iterable[int], send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._took = dict.fromkeys(ranks, 0)
        self._kept: deque[bytes] = deque()  # sent, from the byte `_let_go` on
        self._let_go = 0
        self._sent = 0
        self._reads = False
        self._ended = False
        self._given = fd
        self._fd, self._copier = _opened(fd)
        if self._fd < 0:
            self._ended = True
            self._send(self._took, {"at": 0}, b"")
        self._watch()

    def _watch(self) -> None:
        wanted = self._fd >= 0 and bool(self._took) and self._sent - self._let_go < _WINDOW
        if wanted and not self._reads:
            self._loop.add_reader(self._fd, self._read)
        elif self._reads and not wanted:
            self._loop.remove_reader(self._fd)
        self._reads = wanted

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # EIO: the terminal has gone
        at, self._sent = self._sent, self._sent + len(data)
        if data:
            self._kept.append(data)
        else:
            self._ended = True
            self._close()
        self._send(self._took, {"at": at}, data)
        self._watch()

    def heard(self, rank: int, told: Mapping[str, Any]) -> None:
        """A node says how many `bytes` its tasks have; `again`: the rest is missing; `closed`: they want no more."""
        if rank not in self._took:
            return
        if told.get("closed"):
            self.forget(rank)
            return
        self._took[rank] = max(self._took[rank], min(int(told["bytes"]), self._sent))
        if told.get("again"):
            self._send_again(rank)
        self._forget_sent()

    def forget(self, rank: int) -> None:
        """A node that wants no more, or is lost."""
        self._took.pop(rank, None)
        if not self._took:
            self.close()
        self._forget_sent()

    def _forget_sent(self) -> None:
        slowest = min(self._took.values(), default=self._sent)
        while self._kept and self._let_go + len(self._kept[0]) <= slowest:
            self._let_go += len(self._kept.popleft())
        self._watch()

    def _send_again(self, rank: int) -> None:
        at = self._let_go
        for piece in self._kept:
            if at + len(piece) > self._took[rank]:
                self._send((rank,), {"at": at}, piece)
            at += len(piece)
        if self._ended:
            self._send((rank,), {"at": self._sent}, b"")

    def close(self) -> None:
        """The step has ended, or nobody reads."""
        self._close()
        self._took.clear()
        self._kept.clear()

    def _close(self) -> None:
        if self._reads:
            self._loop.remove_reader(self._fd)
            self._reads = False
        if self._copier:
            copier.end(self._copier)
            self._copier = 0
        for fd in {self._fd, self._given} - {-1}:
            os.close(fd)
        self._fd = self._given = -1


def _opened(fd: int) -> tuple[int, int]:
    """A descriptor to read from that does not wait, -1 where there is nothing, and the pid of the child that reads for
    us, else 0.
    """
    try:
        if (own := open_anew(fd, os.fstat(fd), os.O_RDONLY)) >= 0:
            return own, 0
        return copier.from_(fd)
    except OSError:
        return -1, 0


class Intake:
    """In the agent of a part: writes into the pipe `fd`, closed here, what comes from the client's agent. `answer`
    tells it what the tasks have taken.
    """

    def __init__(self, fd: int, answer: Callable[[Mapping[str, object]], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[memoryview] = deque()
        self._have = 0
        self._taken = 0
        self._told = 0
        self._waits = False
        self._ended = False

    def take(self, header: Mapping[str, Any], body: bytes) -> None:
        """A message of the client's agent; an empty one is the end."""
        at = int(header["at"])
        if self._fd < 0:
            self._answer({"bytes": self._taken, "closed": True})
            return
        if at > self._have:
            self.ask()
            return
        if not body:
            self._ended = True
        elif fresh := body[max(0, self._have - at) :]:
            self._have += len(fresh)
            if self._have - self._taken > 2 * _WINDOW:
                self.close()  # it does not keep to what it was told
                return
            self._waiting.append(memoryview(fresh))
        if not self._waits:
            self._flush()

    def ask(self) -> None:
        """What is missing is to be sent again."""
        if self._fd >= 0:
            self._answer({"bytes": self._have, "again": True})

    def _flush(self) -> None:
        try:
            while self._waiting:
                size = os.write(self._fd, self._waiting[0])
                self._taken += size
                if size < len(self._waiting[0]):
                    self._waiting[0] = self._waiting[0][size:]
                else:
                    self._waiting.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.close()  # nobody reads it
            return
        if bool(self._waiting) != self._waits:
            self._waits = bool(self._waiting)
            if self._waits:
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)
        if self._taken - self._told >= _WINDOW // 4:
            self._told = self._taken
            self._answer({"bytes": self._taken})
        if self._ended and not self._waiting:
            self.close(told=True)

    def close(self, *, told: bool = False) -> None:
        """The tasks see the end."""
        if self._fd < 0:
            return
        if self._waits:
            self._loop.remove_writer(self._fd)
            self._waits = False
        os.close(self._fd)
        self._fd = -1
        self._waiting.clear()
        if not told:
            self._answer({"bytes": self._taken, "closed": True})
