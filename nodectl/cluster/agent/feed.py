"""A client's standard input, on its way to all nodes of its step, and into the tasks there.

The slowest node that reads sets the pace. A node whose tasks have closed their input is left out from then on; one
whose tasks do not read at all keeps the input standing, and nothing else: the end of a step never waits for it.
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
    """In the client's agent: reads `fd`, which is closed here; -1 has its end at once. `send` sends to nodes by their
    ranks.
    """

    def __init__(self, fd: int, ranks: Iterable[int], send: Send) -> None:
        self._send = send
        self._took = dict.fromkeys(ranks, 0)
        self._slowest = 0  # of these
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
        """A node says how many `bytes` its tasks have; `again`: it does not have what is behind `have`; `closed`: they
        want no more.
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
        """A link was broken: says where it stands, and hears what is missing. A node that has heard nothing yet does
        not ask by itself.
        """
        if rank in self._took:
            self._send((rank,), {"at": self._sent.end, "end": self._ended}, b"")

    def forget(self, rank: int) -> None:
        """A node that wants no more, or is lost."""
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
        """The step has ended, or nobody reads."""
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
    """A descriptor to read from that does not wait, -1 where there is nothing, and the pid of the child that reads for
    us, else 0.
    """
    if fd < 0:
        return -1, 0
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
        self._watch = Watch(fd, self._flush, writes=True)
        self._waiting: deque[memoryview] = deque()
        self._have = 0
        self._taken = 0
        self._told = 0
        self._asked = -1  # what is behind this place is asked for already
        self._ended = False

    def take(self, header: Mapping[str, Any], body: bytes) -> None:
        """A message of the client's agent."""
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
                self.close()  # it does not keep to what it was told
                return
            self._waiting.append(memoryview(fresh))
        if not self._watch.wanted:
            self._flush()

    def ask(self) -> None:
        """What is missing is to be sent again."""
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
            self.close()  # nobody reads it
            return
        self._watch.want(self._waiting)
        if self._taken - self._told >= _WINDOW // 4:
            self._told = self._taken
            self._answer({"bytes": self._taken})
        if self._ended and not self._waiting:
            self.close(told=True)

    def close(self, *, told: bool = False) -> None:
        """The tasks see the end."""
        if self._fd < 0:
            return
        self._watch.want(False)
        os.close(self._fd)
        self._fd = -1
        self._waiting.clear()
        if not told:
            self._answer({"bytes": self._taken, "closed": True})
