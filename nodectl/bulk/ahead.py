"""A pipe's data, kept in a nameless file while a bulk waits for a turn, and read from there later.

The writer of the pipe may be a bulk holding the CPUs, which gives them back only after having written everything.
"""

import os
import stat

_CHUNK = 1 << 16
MOST = 1 << 30  # bytes: beyond them the writer is held back, so that `yes` does not fill a disk


class Ahead:
    """The file of kept data. `fd` is the pipe, -1 when reading ahead has stopped."""

    __slots__ = ("_at", "_file", "_pipe", "_rest", "_size", "fd")

    def __init__(self, pipe: int) -> None:
        self._pipe = self.fd = pipe
        self._file = -1
        self._at = self._size = 0
        self._rest = b""  # for which the disk had no room

    def read(self) -> None:
        """Read the data in the pipe, and leave the pipe's end for later. A full disk holds the writer back."""
        try:
            if self._file < 0:
                self._file = _nameless()
            chunk = os.read(self._pipe, _CHUNK)
        except OSError:
            self.fd = -1  # a later read of the pipe reports the error
            return
        if not chunk:
            self.fd = -1
            return
        self._rest = self._written(chunk)
        if self._rest or self._size >= MOST:
            self.fd = -1

    def _written(self, chunk: bytes) -> bytes:
        """Write the data to the file, and return the rest for which the disk has no room."""
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
        """The descriptor of the file while data is kept, -1 if none is."""
        return self._file if self._at < self._size or self._rest else -1

    def take(self) -> bytes:
        """Return the next kept bytes, or none where the pipe comes next. Raises OSError."""
        if self._at < self._size:
            chunk = os.pread(self._file, _CHUNK, self._at)
            self._at += len(chunk)
        else:
            chunk, self._rest = self._rest, b""
        if self.readable < 0:
            self.close()
        return chunk

    def close(self) -> None:
        """Discard the kept data."""
        self._at = self._size = 0
        self._rest = b""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def is_pipe(fd: int) -> bool:
    """Return True if a writer may be waiting for the reader."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _nameless() -> int:
    """Return a file in the directory for temporary files. Raises OSError."""
    import tempfile  # only where something waits

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
