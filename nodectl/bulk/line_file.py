"""Files with a line for each ended command: a single write(2) for each line, and no line is ever changed.

So the file tells what has happened, whatever became of the command, of its step or of the machine since. A line cut
short can stand only at the end, and is removed when the file is continued.
"""

import fcntl
import os
import stat
from typing import TYPE_CHECKING

from nodectl.client.command import Failed

if TYPE_CHECKING:
    from typing import ClassVar

_CHUNK = 1 << 20
_OPEN = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LineFile:
    """An open file, to which lines are added. `keep`: keep the contents. Raises Failed."""

    __slots__ = ("_dirty", "_fd", "_path")
    KIND: "ClassVar[str]"  # the name in errors
    BEGIN: "ClassVar[bytes]"  # the beginning of every file of this kind
    HEAD: "ClassVar[bytes]" = b""  # the first line of a new file

    def __init__(self, path: str, *, keep: bool) -> None:
        self._path = path
        self._dirty = False
        try:
            self._fd = opened(self.KIND, path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self._lock()
            size = os.fstat(self._fd).st_size
            if keep and size:
                self._mend(size)
            elif size:
                os.ftruncate(self._fd, 0)
            if self.HEAD and not os.fstat(self._fd).st_size:
                self._write(self.HEAD)
        except OSError as error:
            raise self._failed(error.strerror) from None

    def _failed(self, why: str | None) -> Failed:
        return Failed(f"{self.KIND} {self._path}: {why}", 255)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._failed("another nodectl bulk is writing it") from None
        except OSError:
            return  # a file system without locks

    def _mend(self, size: int) -> None:
        """Cut off an incomplete line left by a full disk or a lost machine."""
        if not begins(self._fd, self.BEGIN):
            raise self._failed("this is another kind of file")
        end = size
        while end:
            at = max(0, end - _CHUNK)
            tail = os.pread(self._fd, end - at, at)
            cut = tail.rstrip(b"\0")  # blocks that were allocated and never written
            whole = cut.rfind(b"\n") + 1
            if whole:
                end = at + whole
                break
            end = at
        if end != size:
            os.ftruncate(self._fd, end)

    def add(self, line: bytes) -> None:
        """Add a line, newline included. Raises Failed."""
        try:
            self._write(line)
        except OSError as error:
            raise self._failed(error.strerror) from None
        self._dirty = True

    def _write(self, data: bytes) -> None:
        while (written := os.write(self._fd, data)) < len(data):  # a disk is full: in the end it fails with the reason
            data = data[written:]

    def settle(self) -> None:
        """Write to disk, so the file survives a crash of the machine. Raises Failed."""
        if self._dirty:
            self._dirty = False
            self._sync()

    def _sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError:
            return  # a file system that cannot

    def close(self) -> None:
        """Close the file, after writing it to disk. Raises Failed."""
        self.settle()
        os.close(self._fd)


def opened(kind: str, path: str, flags: int) -> int:
    """Open a regular file without waiting. Raises OSError, Failed.

    A FIFO without a reader, or a device, would hold up all commands, and could not be read for --resume.
    """
    fd = os.open(path, flags | _OPEN, 0o666)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise Failed(f"{kind} {path}: this is not a regular file", 255)


def begins(fd: int, begin: bytes) -> bool:
    """Return True if the file begins with `begin`, or with a part of `begin`."""
    found = os.pread(fd, len(begin), 0)
    return found.startswith(begin) or begin.startswith(found.rstrip(b"\0"))
