"""Records of a file, a pipe or a terminal, read on demand, with memory for a single chunk."""

import os
import stat

from nodectl.bulk.ahead import Ahead, is_pipe
from nodectl.client.command import Failed

_CHUNK = 1 << 16
LONGEST = 1 << 20  # bytes of one record; the kernel takes 128 KiB as one argument


class Lines:
    """The records of an open descriptor. `name` appears in the error for a long record."""

    __slots__ = ("_ahead", "_delimiter", "_fd", "_name", "_records", "_tail", "_text", "over")

    def __init__(self, fd: int, name: str, delimiter: bytes = b"\n") -> None:
        self._fd = fd
        self._name = name
        self._delimiter = delimiter
        self._text = delimiter.decode("latin-1")
        self._records: list[str] = []  # the next one last
        self._tail = b""
        self._ahead: Ahead | None = None
        self.over = False  # nothing more can be read; some may still be there

    @property
    def fd(self) -> int:
        """The descriptor to wait for before `read`; -1 when all has been read."""
        if self.over:
            return -1
        kept = -1 if self._ahead is None else self._ahead.readable
        return self._fd if kept < 0 else kept

    def ahead(self) -> Ahead | None:
        """Return a reader which keeps a pipe's data for later reads; None where the source is no pipe."""
        if self.over or not is_pipe(self._fd):
            return None
        if self._ahead is None or self._ahead.readable < 0:
            self._ahead = Ahead(self._fd)
        return self._ahead

    def take(self) -> str | None:
        """Return the next record; None when `read` must come first, or at the end."""
        return self._records.pop() if self._records else None

    def read(self) -> None:
        """Read once, and wait if nothing has come yet. Raises Failed."""
        if self.over or self._records:
            return
        try:
            chunk = (self._ahead.take() if self._ahead else b"") or os.read(self._fd, _CHUNK)
        except OSError as error:
            raise Failed(f"read {self._name}: {error.strerror}", 255) from None
        if not chunk:
            self.over = True
            whole, self._tail = self._tail, b""
            self._records = [whole.decode("utf-8", "surrogateescape")] if whole else []
            return
        whole, delimiter, rest = chunk.rpartition(self._delimiter)
        if not delimiter:
            self._tail += chunk
        else:
            whole, self._tail = self._tail + whole, rest
            self._records = whole.decode("utf-8", "surrogateescape").split(self._text)
            self._records.reverse()
        if len(self._tail) > LONGEST:
            raise Failed(f"{self._name}: a line longer than {LONGEST} bytes", 255)

    def next(self) -> str | None:
        """Return the next record, waiting for data; None at the end. Raises Failed."""
        while not self._records and not self.over:
            self.read()
        return self.take()


def count(fd: int, delimiter: bytes = b"\n") -> int | None:
    """Return the number of records from here in a regular file, None for anything else. The file position stays."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    try:
        at = os.lseek(fd, 0, os.SEEK_CUR)
        number, last = 0, delimiter
        while chunk := os.pread(fd, 16 * _CHUNK, at):
            number += chunk.count(delimiter)
            last = chunk[-1:]
            at += len(chunk)
    except OSError:
        return None
    return number + (last != delimiter)
