"""A client's standard input, on the way to all nodes of the step, and into the tasks there.

The slowest reading node sets the pace. A node whose tasks have closed their input is left out from then on; a node
whose tasks do not read at all blocks the input, and nothing else: the end of a step never waits for it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodectl.cluster.agent import copier
from nodectl.cluster.agent.sent_bytes import SentBytes
from nodectl.cluster.agent.sinks import open_anew
from nodectl.cluster.agent.watch import Watch

_WINDOW = 512 << 10
_CHUNK = 64 << 10

Send = Callable[[Iterable[int], Mapping[str, object], bytes], None]


class Feed:
    """The sending end, in the client's agent.

    Reads and closes `fd`; -1 means an empty input. `send` sends to nodes by rank.
    """

    def __init__(self, fd: int, ranks: Iterable[int], send: Send) -> None:
        self._send = send
        self._took = dict.fromkeys(ranks, 0)
        self._slowest = 0  # the lowest value of `_took`
        self._sent = SentBytes()
        self._ended = False
        self._given = fd
        self._fd, self._copier = _opened(fd)
        self._watch = Watch(self._fd, self._read)
        if self._fd < 0:
            self._end()
        self._go_on()

    def _go_on(self) -> None:
        self._watch.want(self._fd >= 0 and self._took and self._sent.end - self._slowest < _WINDOW)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # EIO: the terminal has gone
        if data:
            self._send(self._took, {"at": self._sent.add(data)}, data)
        else:
            self._close()
            self._end()
        self._go_on()

    def _end(self) -> None:
        self._ended = True
        self._send(self._took, {"at": self._sent.end, "end": True}, b"")

    def heard(self, rank: int, told: Mapping[str, Any]) -> None:
        """Handle a node's report.

        `bytes`: the count that its tasks have; `again`: bytes behind `have` are missing; `closed`: the tasks want no
        more.
        """
        if rank not in self._took:
            return
        if told.get("closed"):
            self.forget(rank)
            return
        self._took[rank] = max(self._took[rank], min(int(told["bytes"]), self._sent.end))
        if told.get("again"):
            self._send_again(rank, int(told["have"]))
        self._forget_sent()

    def resumed(self, rank: int) -> None:
        """Report the present place to a node after a broken link, and so learn the missing bytes.

        A node that has heard nothing yet does not ask on its own.
        """
        if rank in self._took:
            self._send((rank,), {"at": self._sent.end, "end": self._ended}, b"")

    def forget(self, rank: int) -> None:
        """Leave out a lost node, or a node without need for more input."""
        self._took.pop(rank, None)
        if not self._took:
            self.close()
        self._forget_sent()

    def _forget_sent(self) -> None:
        self._slowest = min(self._took.values(), default=self._sent.end)
        self._sent.forget(self._slowest)
        self._go_on()

    def _send_again(self, rank: int, have: int) -> None:
        for at, piece in self._sent.since(have):
            self._send((rank,), {"at": at}, piece)
        if self._ended:
            self._send((rank,), {"at": self._sent.end, "end": True}, b"")

    def close(self) -> None:
        """Stop reading after the step's end, or without readers."""
        self._close()
        self._took.clear()
        self._sent.clear()

    def _close(self) -> None:
        self._watch.want(False)
        if self._copier:
            copier.end(self._copier)
            self._copier = 0
        for fd in {self._fd, self._given} - {-1}:
            os.close(fd)
        self._fd = self._given = -1


def _opened(fd: int) -> tuple[int, int]:
    """Return a non-blocking descriptor for reading, -1 for none, and the pid of the reading child, 0 for none."""
    if fd < 0:
        return -1, 0
    try:
        if (own := open_anew(fd, os.fstat(fd), os.O_RDONLY)) >= 0:
            return own, 0
        return copier.from_(fd)
    except OSError:
        return -1, 0


class Intake:
    """The receiving end, in the agent of a part.

    Writes the input from the client's agent into the pipe `fd`, and closes it. `answer` reports to the client's agent
    the bytes that the tasks have taken.
    """

    def __init__(self, fd: int, answer: Callable[[Mapping[str, object]], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._answer = answer
        self._watch = Watch(fd, self._flush, writes=True)
        self._waiting: deque[memoryview] = deque()
        self._have = 0
        self._taken = 0
        self._told = 0
        self._asked = -1  # the bytes behind this place are requested already
        self._ended = False

    def take(self, header: Mapping[str, Any], body: bytes) -> None:
        """Handle a message of the client's agent."""
        at = int(header["at"])
        if self._fd < 0:
            self._answer({"bytes": self._taken, "closed": True})
            return
        if at > self._have:
            if self._asked != self._have or "end" in header:
                self.ask()
            return
        if header.get("end"):
            self._ended = True
        elif fresh := body[max(0, self._have - at) :]:
            self._have += len(fresh)
            if self._have - self._taken > 2 * _WINDOW:
                self.close()  # the sender ignores the window
                return
            self._waiting.append(memoryview(fresh))
        if not self._watch.wanted:
            self._flush()

    def ask(self) -> None:
        """Ask for missing bytes again."""
        if self._fd >= 0:
            self._told, self._asked = self._taken, self._have
            self._answer({"bytes": self._taken, "have": self._have, "again": True})

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
            self.close()  # the pipe has no reader
            return
        self._watch.want(self._waiting)
        if self._taken - self._told >= _WINDOW // 4:
            self._told = self._taken
            self._answer({"bytes": self._taken})
        if self._ended and not self._waiting:
            self.close(told=True)

    def close(self, *, told: bool = False) -> None:
        """Close the tasks' input."""
        if self._fd < 0:
            return
        self._watch.want(False)
        os.close(self._fd)
        self._fd = -1
        self._waiting.clear()
        if not told:
            self._answer({"bytes": self._taken, "closed": True})
