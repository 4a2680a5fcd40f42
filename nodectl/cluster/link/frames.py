"""Frames: 4 bytes of length, the payload. No I/O. TLS protects them on their way."""

LONGEST = 4 << 20  # bytes of a payload
HEAD = 4


class BadFrame(Exception):
    """A frame that no member sends; str() is a single line. The connection must end."""


def head(payload: bytes) -> bytes:
    """Return the bytes that precede a payload. Raises ValueError if the payload is too long."""
    if len(payload) > LONGEST:
        raise ValueError(f"a message of {len(payload)} bytes is longer than {LONGEST}")
    return len(payload).to_bytes(HEAD, "big")


class FrameReader:
    """A decoder of frames. Holds at most one frame and the data received with its end."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._data += data

    @property
    def size(self) -> int:
        """The number of bytes received of an incomplete frame."""
        return len(self._data)

    def next(self) -> bytes | None:
        """Return the next payload, None until more data comes. Raises BadFrame; no payload follows then."""
        data = self._data
        if len(data) < HEAD:
            return None
        length = int.from_bytes(data[:HEAD], "big")
        if length > LONGEST:
            raise BadFrame(f"a frame of {length} bytes is announced, the longest has {LONGEST}")
        end = HEAD + length
        if len(data) < end:
            return None
        payload = bytes(memoryview(data)[HEAD:end])
        del data[:end]
        return payload
