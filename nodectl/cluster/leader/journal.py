"""The leader's memory on the disk: a file to which entries are appended, a line each with a sum of it.

Whoever is killed while writing leaves a torn last line, which the next one leaves out and writes over. What is appended
outlives the process at once; what is `durable` outlives the machine. When the file has grown to several times what is
worth knowing, it is written anew and renamed into place. A disk that is full costs the memory, and not the leader.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodectl.wire import lean_json

_SUM = 8  # hexadecimal digits
_SLACK = 8 << 20
_LARGEST = 1 << 30
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
Entry = Mapping[str, Any]


class InUse(Exception):
    """Another leader has the journal; str() is one line."""


class Journal:
    """The file at `path`, alone. `say` gets a line for the log where it cannot be written. Raises OSError, InUse."""

    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._is_broken = self._is_dirty = False
        self._fd = _locked(path)
        self.entries, self._size = _read(self._fd)
        self._base = self._size
        os.ftruncate(self._fd, self._size)

    def append(self, entries: Iterable[Entry], *, durable: bool = False) -> None:
        """These follow."""
        data = b"".join(map(_line, entries))
        try:
            _write(self._fd, data, self._size)
            if durable:
                os.fdatasync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)  # half of it is worth nothing
            if not self._is_broken:
                self._say(f"the leader's journal {self._path} cannot be written: {error.strerror}")
            self._is_broken = True
            return
        self._is_broken = False
        self._is_dirty = not durable
        self._size += len(data)

    def flush(self) -> None:
        """What was appended outlives the machine, too."""
        if self._is_dirty:
            self._is_dirty = False
            with contextlib.suppress(OSError):  # at the next line it is told
                os.fdatasync(self._fd)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been kept."""
        return not self._size

    @property
    def is_long(self) -> bool:
        """Whether it is worth while to write it anew."""
        return self._size > 2 * self._base + _SLACK

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """These say all that is known."""
        new = f"{self._path}.new"
        fd = -1
        try:
            fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            _lock(fd)
            data = b"".join(map(_line, entries))
            _write(fd, data, 0)
            os.fsync(fd)
            os.rename(new, self._path)
        except OSError as error:
            self._say(f"the leader's journal {self._path} cannot be written anew: {error.strerror}")
            if fd >= 0:
                os.close(fd)
            self._base = self._size  # not again at once
            return
        os.close(self._fd)
        self._fd, self._size, self._base = fd, len(data), len(data)

    def close(self) -> None:
        """Another one may have it."""
        os.close(self._fd)


def read(path: str) -> list[Entry]:
    """What another leader has kept, who is no more; nothing where there is none. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    try:
        return _read(fd)[0]
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    """Where the disk has no locks, as some that a cluster's nodes share, the agent's word counts, which has one leader
    at a time. Raises OSError.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _locked(path: str) -> int:
    """A descriptor of the file that nobody else has. Raises OSError, InUse."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(fd)
        except BlockingIOError:
            os.close(fd)
            raise InUse(f"{path}: another leader has it") from None
        except OSError:
            os.close(fd)
            raise
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
        os.close(fd)  # it was written anew meanwhile


def _read(fd: int) -> tuple[list[Entry], int]:
    """The entries up to the first that is torn, and where these end."""
    entries: list[Entry] = []
    end = 0
    with open(os.dup(fd), "rb") as file:
        for line in file:
            entry = _entry(line)
            if entry is None or end + len(line) > _LARGEST:
                break
            entries.append(entry)
            end += len(line)
    return entries, end


def _entry(line: bytes) -> Entry | None:
    text = line[_SUM + 1 : -1]
    if not line.endswith(b"\n") or line[:_SUM] != b"%08x" % zlib.crc32(text):
        return None
    try:
        return lean_json.load_object(text)
    except lean_json.BadJson:
        return None


def _line(entry: Entry) -> bytes:
    text = lean_json.dumps(entry).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _write(fd: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, at)
        rest, at = rest[written:], at + written
