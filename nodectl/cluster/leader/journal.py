"""The leader's memory on the disk: a file of appended entries, each a line with a checksum.

A process killed while writing leaves a torn last line, which the next process ignores and overwrites. Appended entries
outlive the process at once; `durable` entries outlive the machine. When the file has grown to several times its useful
size, it is rewritten and renamed into place. A full disk costs the memory, but not the leader.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodectl.model.wire import lean_json

_SUM = 8  # hexadecimal digits
_SLACK = 8 << 20
_LARGEST = 1 << 30
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
Entry = Mapping[str, Any]


class InUse(Exception):
    """Raised where the journal belongs to another leader; str() is a single line."""


class Journal:
    """The journal at `path`, locked. `say` gets a line for the log where a write fails. Raises OSError, InUse."""

    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._is_broken = self._is_dirty = False
        self._fd = _locked(path)
        self.entries, self._size = _read(self._fd)
        self._base = self._size
        os.ftruncate(self._fd, self._size)

    def append(self, entries: Iterable[Entry], *, durable: bool = False) -> None:
        """Append entries."""
        data = b"".join(map(_line, entries))
        try:
            _write(self._fd, data, self._size)
            if durable:
                os.fdatasync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)  # a partial entry is worthless
            if not self._is_broken:
                self._say(f"the leader's journal {self._path} cannot be written: {error.strerror}")
            self._is_broken = True
            return
        self._is_broken = False
        self._is_dirty = not durable
        self._size += len(data)

    def flush(self) -> None:
        """Write appended entries to the disk, where entries outlive the machine."""
        if self._is_dirty:
            self._is_dirty = False
            with contextlib.suppress(OSError):  # the next append reports the error
                os.fdatasync(self._fd)

    @property
    def is_empty(self) -> bool:
        """Whether the journal has no entries."""
        return not self._size

    @property
    def is_long(self) -> bool:
        """Whether a rewrite would pay."""
        return self._size > 2 * self._base + _SLACK

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Replace the journal by entries for the whole state."""
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
            self._base = self._size  # so the next attempt comes later
            return
        os.close(self._fd)
        self._fd, self._size, self._base = fd, len(data), len(data)

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self._fd)


def read(path: str) -> list[Entry]:
    """Return the entries of an ended leader's journal; an empty list without a journal. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    try:
        return _read(fd)[0]
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    """Lock the file. Raises OSError.

    Some disks shared by a cluster's nodes have no locks; the agent then ensures a single leader at a time.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _locked(path: str) -> int:
    """Return a descriptor of the file, locked by this process alone. Raises OSError, InUse."""
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
        os.close(fd)  # the journal was rewritten meanwhile


def _read(fd: int) -> tuple[list[Entry], int]:
    """Return the entries up to the first torn line, and the offset of the end."""
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
