"""What was sent of a stream, by places in it, kept until the other end has taken it: a link may lose it on its way."""

from collections import deque
from collections.abc import Iterator


class SentBytes:
    """Of one stream: `end` is the place behind all of it."""

    __slots__ = ("_begin", "_kept", "end")

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()  # from the place `_begin` on
        self._begin = 0
        self.end = 0

    def __bool__(self) -> bool:
        """Whether something is kept."""
        return bool(self._kept)

    def add(self, data: bytes) -> int:
        """Sent now: its place."""
        self._kept.append(data)
        at, self.end = self.end, self.end + len(data)
        return at

    def forget(self, taken: int) -> None:
        """What is before that place is not wanted again."""
        while self._kept and self._begin + len(self._kept[0]) <= taken:
            self._begin += len(self._kept.popleft())

    def since(self, have: int) -> Iterator[tuple[int, bytes]]:
        """Pieces and their places, from the one on that has the byte at `have`."""
        at = self._begin
        for piece in self._kept:
            if at + len(piece) > have:
                yield at, piece
            at += len(piece)

    def clear(self) -> None:
        """Nothing is wanted again."""
        self._kept.clear()
