"""Frames: 4 bytes of length, 16 bytes of MAC, the payload. No I/O.

The MAC is a keyed BLAKE2b over the frame's number in its direction and the payload: a frame that is changed, left out,
repeated, moved, or sent back to where it came from fails at the receiver, and with it the connection.
"""

from _blake2 import blake2b

from nodectl.cluster.link.keys import MAC, are_same

LONGEST = 4 << 20  # bytes of a payload
_LENGTH = 4
HEAD = _LENGTH + MAC


class BadFrame(Exception):
    """A frame that differs from the frame sent; str() is a single line. The connection must end."""


class Sealer:
    """An encoder of frames in a single direction."""

    __slots__ = ("_keyed", "_number")

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(digest_size=MAC, key=key)
        self._number = 0

    def seal(self, payload: bytes) -> bytes:
        """Return the frame of the next payload. Raises ValueError if the payload is too long."""
        if len(payload) > LONGEST:
            raise ValueError(f"a message of {len(payload)} bytes is longer than {LONGEST}")
        return b"%b%b%b" % (len(payload).to_bytes(_LENGTH, "big"), self.mac(payload), payload)

    def mac(self, payload: bytes) -> bytes:
        """Return the MAC of the next payload."""
        mac = self._keyed.copy()
        mac.update(self._number.to_bytes(8, "big"))
        mac.update(payload)
        self._number += 1
        return mac.digest()


class Opener:
    """A decoder of frames in a single direction.

    Holds at most one frame and the data received with its end.
    """

    __slots__ = ("_data", "_sealer")

    def __init__(self, key: bytes) -> None:
        self._data = bytearray()
        self._sealer = Sealer(key)

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
        length = int.from_bytes(data[:_LENGTH], "big")
        if length > LONGEST:
            raise BadFrame(f"a frame of {length} bytes is announced, the longest has {LONGEST}")
        end = HEAD + length
        if len(data) < end:
            return None
        payload = bytes(memoryview(data)[HEAD:end])
        if not are_same(self._sealer.mac(payload), bytes(data[_LENGTH:HEAD])):
            raise BadFrame("a frame is not what the other side has sent")
        del data[:end]
        return payload
