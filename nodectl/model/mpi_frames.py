"""Frames between the MPI server of a node's part of a step and the agent of the same node, over a local socket.

A frame has a head (size, node of the step, kind) and data. The node of a server's frame is the receiver, the node of an
agent's frame is the sender.

HELLO   first and once, from the step runner that has connected for the server: the step that the server serves, as 7.0
DATA    for the server of that node, or for the servers of ALL other nodes; the agent does not read the data
AGAIN   from the agent: frames on their way to that node and from there may be lost
ENDED   from the agent: the server of that node is gone
"""

from struct import Struct

HELLO, DATA, AGAIN, ENDED = range(4)
ALL = -1
LONGEST = 1 << 19  # bytes of a frame
_HEAD = Struct(">IiB")


class BadFrame(Exception):
    """A malformed frame; the connection is over."""


def frame(node: int, kind: int, data: bytes = b"") -> bytes:
    """Return a frame."""
    return head(node, kind, len(data)) + data


def head(node: int, kind: int, size: int) -> bytes:
    """Return the head of a frame with `size` bytes of data."""
    return _HEAD.pack(size, node, kind)


class FrameInbox:
    """A splitter of received bytes into frames. Holds at most a frame and the bytes received with the frame's end."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._data += data

    def next(self) -> "tuple[int, int, bytes] | None":
        """Return node, kind and data of the next frame, None for an incomplete frame. Raises BadFrame."""
        if len(self._data) < _HEAD.size:
            return None
        length, node, kind = _HEAD.unpack_from(self._data)
        if length > LONGEST or kind > ENDED:
            raise BadFrame
        end = _HEAD.size + length
        if len(self._data) < end:
            return None
        data = bytes(self._data[_HEAD.size : end])
        del self._data[:end]
        return node, kind, data
