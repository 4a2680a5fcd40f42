"""Slurm's Buf, into which plugins pack data about a node or a job, and from which they unpack the data again.

The reader may be another release. Numbers are in network order as in Slurm's pack functions. Reading past the end
raises BadBuffer at once. Pure.
"""

from __future__ import annotations

import struct

MAX_SIZE = 16 << 20
MAX_STRING = 1 << 20
_NONE = 0xFFFFFFFF


class BadBuffer(ValueError):
    """Data with an early end, or with malformed content."""


class Buf:
    """A buffer. Packing appends at the end; unpacking reads from `offset` on."""

    __slots__ = ("_data", "offset")

    def __init__(self, data: bytes = b"") -> None:
        if len(data) > MAX_SIZE:
            raise BadBuffer(f"more than {MAX_SIZE} bytes")
        self._data = bytearray(data)
        self.offset = 0

    def __len__(self) -> int:
        return len(self._data)

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def remaining(self) -> int:
        """Return the number of bytes still to be unpacked."""
        return len(self._data) - self.offset

    def pack8(self, number: int) -> None:
        """Append a number from 0 to 255. All pack methods raise BadBuffer."""
        self._pack("!B", number)

    def pack16(self, number: int) -> None:
        """Append a number of 16 bits."""
        self._pack("!H", number)

    def pack32(self, number: int) -> None:
        """Append a number of 32 bits."""
        self._pack("!I", number)

    def pack64(self, number: int) -> None:
        """Append a number of 64 bits."""
        self._pack("!Q", number)

    def packdouble(self, number: float) -> None:
        """Append a number with a fraction."""
        self._pack("!d", number)

    def packbool(self, flag: bool) -> None:
        """Append a truth value."""
        self._pack("!B", int(bool(flag)))

    def packmem(self, data: bytes) -> None:
        """Append the length of some bytes, and the bytes."""
        if len(data) > MAX_STRING:
            raise BadBuffer(f"more than {MAX_STRING} bytes in one string")
        self._pack("!I", len(data))
        self._append(bytes(data))

    def packstr(self, text: str | None) -> None:
        """Append a text, or None."""
        if text is None:
            self._pack("!I", _NONE)
        else:
            self.packmem(text.encode("utf-8", "surrogateescape"))

    def unpack8(self) -> int:
        """Read a number appended by pack8. All unpack methods raise BadBuffer."""
        return int(self._unpack("!B"))

    def unpack16(self) -> int:
        """Read a number of 16 bits."""
        return int(self._unpack("!H"))

    def unpack32(self) -> int:
        """Read a number of 32 bits."""
        return int(self._unpack("!I"))

    def unpack64(self) -> int:
        """Read a number of 64 bits."""
        return int(self._unpack("!Q"))

    def unpackdouble(self) -> float:
        """Read a number with a fraction."""
        return self._unpack("!d")

    def unpackbool(self) -> bool:
        """Read a truth value."""
        return bool(self._unpack("!B"))

    def unpackmem(self) -> bytes:
        """Read bytes."""
        found = self._string()
        if found is None:
            raise BadBuffer("no string there")
        return found

    def unpackstr(self) -> str | None:
        """Read a text, or None."""
        found = self._string()
        return None if found is None else found.decode("utf-8", "surrogateescape")

    def _string(self) -> bytes | None:
        length = self.unpack32()
        if length == _NONE:
            return None
        if length > min(self.remaining(), MAX_STRING):
            raise BadBuffer(f"a string of {length} bytes where {self.remaining()} are left")
        self.offset += length
        return bytes(self._data[self.offset - length : self.offset])

    def _pack(self, form: str, number: float) -> None:
        try:
            self._append(struct.pack(form, number))
        except (struct.error, TypeError) as error:
            raise BadBuffer(f"{number!r} cannot be packed: {error}") from None

    def _append(self, data: bytes) -> None:
        if len(self._data) + len(data) > MAX_SIZE:
            raise BadBuffer(f"more than {MAX_SIZE} bytes")
        self._data += data

    def _unpack(self, form: str) -> float:
        size = struct.calcsize(form)
        if size > self.remaining():
            raise BadBuffer(f"{size} bytes are wanted, {self.remaining()} are left")
        (number,) = struct.unpack_from(form, self._data, self.offset)
        self.offset += size
        return float(number) if form == "!d" else int(number)
