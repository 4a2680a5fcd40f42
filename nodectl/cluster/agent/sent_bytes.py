"""The sent bytes of a stream, by place, kept until taken by the remote end: a link may lose bytes on the way."""

from collections import deque
from collections.abc import Iterator


class SentBytes:
    """The sent bytes of a stream. `end`: the place behind the last byte."""

    __slots__ = ("_begin", "_kept", "end")

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()  # from the place `_begin` on
        self._begin = 0
        self.end = 0

    def __bool__(self) -> bool:
        """Return whether bytes are kept."""
        return bool(self._kept)

    def add(self, data: bytes) -> int:
        """Add sent data and return the place."""
        self._kept.append(data)
        at, self.end = self.end, self.end + len(data)
        return at

    def forget(self, taken: int) -> None:
        """Forget the data before a place."""
        while self._kept and self._begin + len(self._kept[0]) <= taken:
            self._begin += len(self._kept.popleft())

    def since(self, have: int) -> Iterator[tuple[int, bytes]]:
        """Yield pieces and places, starting with the piece of the byte at `have`."""
        at = self._begin
        for piece in self._kept:
            if at + len(piece) > have:
                yield at, piece
            at += len(piece)

    def clear(self) -> None:
        """Forget all data."""
        self._kept.clear()
