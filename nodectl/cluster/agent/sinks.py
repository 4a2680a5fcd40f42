"""Output streams handed over by a client, written without ever waiting.

Other processes have the same open file, the client's shell for one, so the agent must not change its flags. Pipes and
terminals are opened anew; a write to a socket can ask not to wait. A regular file may be on a server that hangs, and
then a write waits in any case: a child of the agent writes it, forked at the first output.
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
    """An output stream.

    `write` keeps data for which there is no room: the caller bounds it. `broken`: the stream has no reader.
    """

    def __init__(self, fd: int) -> None:
        """Take `fd`, which is closed with the sink."""
        self._given = fd
        self._out = -1
        self._copier = 0
        self._waiting: deque[tuple[memoryview, Written]] = deque()
        self._watch = Watch(self._out, self._flush, writes=True)
        self._on_flushed: Callable[[], None] | None = None
        self.broken = fd < 0

    def write(self, data: bytes, done: Written) -> None:
        """Write data; `done` gets the number of bytes written or thrown away."""
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
        """Call `then` when all data is written; no more data may follow."""
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
            copier.when_ended(pid, then)  # the child has read all at its end
        else:
            then()

    def close(self) -> None:
        """Close the stream and drop the rest; `done` counts the rest as thrown away."""
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
    """Return a non-blocking descriptor for the file of `fd`, and the pid of the child writing the file, else 0.

    Raises OSError where the file has no reader.
    """
    status = os.fstat(fd)
    if is_null(status):
        return os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC), 0
    if (own := open_anew(fd, status, os.O_WRONLY)) >= 0:
        return own, 0
    return copier.to(fd)


def open_anew(fd: int, status: os.stat_result, flags: int) -> int:
    """Open a pipe or terminal anew, non-blocking for the caller alone.

    Return -1 for any other file, or for another user's. Raises BrokenPipeError.
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
    """Return whether the file is /dev/null, null(4)."""
    device = os.major(status.st_rdev), os.minor(status.st_rdev)
    return stat.S_ISCHR(status.st_mode) and device == (1, 3)


def is_same(fd: int, other: int) -> bool:
    """Return whether both descriptors are of the same file: then writes to both keep the order."""
    one, two = os.fstat(fd), os.fstat(other)
    return (one.st_dev, one.st_ino, one.st_rdev) == (two.st_dev, two.st_ino, two.st_rdev)
