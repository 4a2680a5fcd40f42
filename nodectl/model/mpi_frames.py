"""Frames between the MPI server of one node's part of a step and the agent of that node, over a local socket.

Each has a head, and its bytes: how many, a node of the step, a kind. The node is whom the server's frame is for, and
whom the agent's frame is from.

HELLO   first and once, from the step runner that has connected for the server: which step it serves, as 7.0
DATA    for the server of that node, or for those of ALL other nodes; the agent reads none of it
AGAIN   from the agent: what was on its way to that node and from there may be lost
ENDED   from the agent: the server of that node is gone
"""

from struct import Struct

HELLO, DATA, AGAIN, ENDED = range(4)
ALL = -1
LONGEST = 1 << 19  # bytes of a frame
_HEAD = Struct(">IiB")


class BadFrame(Exception):
    """What came is no frame. The connection is over."""


def frame(node: int, kind: int, data: bytes = b"") -> bytes:
    """One frame."""
    return head(node, kind, len(data)) + data


def head(node: int, kind: int, size: int) -> bytes:
    """What comes before that many bytes of one."""
    return _HEAD.pack(size, node, kind)


class Inbox:
    """Takes frames apart as they come. It holds no more than one, and what came with its end."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Bytes as they come."""
        self._data += data

    def next(self) -> "tuple[int, int, bytes] | None":
        """Node, kind and bytes of the next frame, None where it is not complete. Raises BadFrame."""
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
