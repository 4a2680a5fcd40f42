"""What comes through a pipe while a bulk waits for its turn: kept in a file without a name, and read from there later.

Whoever writes into the pipe may be a bulk that has the CPUs, and gives them back only when it has written everything.
"""

import os
import stat

_CHUNK = 1 << 16
MOST = 1 << 30  # bytes: beyond them the writer is held back, so that `yes` does not fill a disk


class Ahead:
    """The file. `fd` is the pipe, -1 where no more is read ahead."""

    __slots__ = ("_at", "_file", "_pipe", "_rest", "_size", "fd")

    def __init__(self, pipe: int) -> None:
        self._pipe = self.fd = pipe
        self._file = -1
        self._at = self._size = 0
        self._rest = b""  # for which the disk had no room

    def read(self) -> None:
        """Takes what is in the pipe; the end of the pipe stays there. A full disk holds the writer back."""
        try:
            if self._file < 0:
                self._file = _nameless()
            chunk = os.read(self._pipe, _CHUNK)
        except OSError:
            self.fd = -1  # whoever reads the pipe later tells why
            return
        if not chunk:
            self.fd = -1
            return
        self._rest = self._written(chunk)
        if self._rest or self._size >= MOST:
            self.fd = -1

    def _written(self, chunk: bytes) -> bytes:
        """What the disk has no room for is left."""
        while chunk:
            try:
                written = os.pwrite(self._file, chunk, self._size)
            except OSError:
                break
            self._size += written
            chunk = chunk[written:]
        return chunk

    @property
    def readable(self) -> int:
        """A descriptor that can be read at once while something is kept, -1 where nothing is."""
        return self._file if self._at < self._size or self._rest else -1

    def take(self) -> bytes:
        """The next bytes that are kept; none where the pipe comes next. Raises OSError."""
        if self._at < self._size:
            chunk = os.pread(self._file, _CHUNK, self._at)
            self._at += len(chunk)
        else:
            chunk, self._rest = self._rest, b""
        if self.readable < 0:
            self.close()
        return chunk

    def close(self) -> None:
        """What is kept goes."""
        self._at = self._size = 0
        self._rest = b""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def is_pipe(fd: int) -> bool:
    """True where a writer may wait for the reader."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _nameless() -> int:
    """A file in a directory for temporary files. Raises OSError."""
    import tempfile  # only where something waits

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
