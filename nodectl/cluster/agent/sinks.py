"""Where output goes to: a stream that a client has handed over, written without ever waiting for it.

Others have the same open file, the client's shell for one, so its flags are not ours to change. Pipes and terminals
are opened anew; to a socket one can say at each write not to wait. A regular file may be on a server that hangs, and
writing to it waits whatever one says: a child of the agent does that, which is forked at the first output.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Callable

from nodectl.cluster.agent import copier
from nodectl.cluster.agent.watch import Watch

Written = Callable[[int], None]


class Sink:
    """One stream. `write` keeps what there is no room for: who calls bounds that. `broken`: nobody reads it."""

    def __init__(self, fd: int) -> None:
        """`fd` is closed when the sink is."""
        self._given = fd
        self._out = -1
        self._copier = 0
        self._waiting: deque[tuple[memoryview, Written]] = deque()
        self._watch = Watch(self._out, self._flush, writes=True)
        self._on_flushed: Callable[[], None] | None = None
        self.broken = fd < 0

    def write(self, data: bytes, done: Written) -> None:
        """Writes on; `done` is told how many bytes have gone, or were thrown away."""
        if self._out < 0 and not self.broken:
            self._open()
        self._waiting.append((memoryview(data), done))
        if not self._watch.wanted:
            self._flush()

    def _open(self) -> None:
        try:
            self._out, self._copier = opened(self._given)
        except OSError:
            self.broken = True
            return
        self._watch = Watch(self._out, self._flush, writes=True)

    def _flush(self) -> None:
        while self._waiting:
            data, done = self._waiting.popleft()
            try:
                size = len(data) if self.broken else os.write(self._out, data)
            except BlockingIOError:
                size = 0
            except OSError:
                self.broken = True
                size = len(data)
            if size < len(data):
                self._waiting.appendleft((data[size:], done))
            if size:
                done(size)
            else:
                break
        self._watch.want(self._waiting)
        if not self._waiting and self._on_flushed is not None:
            self._finish()

    def flush(self, then: Callable[[], None]) -> None:
        """Nothing more is written; calls `then` when all has gone."""
        self._on_flushed = then
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        then, self._on_flushed = self._on_flushed, None
        pid, self._copier = self._copier, 0
        self._close()
        if then is None:
            return
        if pid:
            copier.when_ended(pid, then)  # it has read all when it ends
        else:
            then()

    def close(self) -> None:
        """What was not written is thrown away, and its writers are told so."""
        self.broken = True
        waiting, self._waiting = self._waiting, deque()
        if self._copier:
            copier.end(self._copier)
            self._copier = 0
        self._close()
        for data, done in waiting:
            done(len(data))

    def _close(self) -> None:
        self._watch.want(False)
        for fd in {self._out, self._given} - {-1}:
            os.close(fd)
        self._out = self._given = -1


def opened(fd: int) -> tuple[int, int]:
    """A descriptor that does not wait, for what `fd` writes to, and the pid of the child that writes it, else 0. Raises
    OSError: nobody reads it.
    """
    status = os.fstat(fd)
    if is_null(status):
        return os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC), 0
    if (own := open_anew(fd, status, os.O_WRONLY)) >= 0:
        return own, 0
    return copier.to(fd)


def open_anew(fd: int, status: os.stat_result, flags: int) -> int:
    """A pipe or terminal opened so that only the caller does not wait, -1 for what else it is, or for somebody else's.
    Raises BrokenPipeError.
    """
    if not (stat.S_ISFIFO(status.st_mode) or (stat.S_ISCHR(status.st_mode) and os.isatty(fd))):
        return -1
    try:
        return os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if stat.S_ISFIFO(status.st_mode) and error.errno == errno.ENXIO:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        return -1


def is_null(status: os.stat_result) -> bool:
    """Whether it is /dev/null, null(4)."""
    device = os.major(status.st_rdev), os.minor(status.st_rdev)
    return stat.S_ISCHR(status.st_mode) and device == (1, 3)


def is_same(fd: int, other: int) -> bool:
    """Whether both are one file: then what is written to them keeps its order."""
    one, two = os.fstat(fd), os.fstat(other)
    return (one.st_dev, one.st_ino, one.st_rdev) == (two.st_dev, two.st_ino, two.st_rdev)
