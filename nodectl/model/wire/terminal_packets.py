"""The packets between a viewer of a step's streams and the step's process which copies the streams.

They are packets of a SOCK_SEQPACKET socket. A packet is a kind, the number of a task in four bytes, and data.

    to the step       INPUT typed bytes, none at the end; WINDOW the viewer's struct winsize
    to the viewer     OUT, ERR bytes of a task's stream; NOTE a line about the stream
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

INPUT, WINDOW, OUT, ERR, NOTE = b"i", b"w", b"o", b"e", b"n"
WINDOW_SIZE = 8  # bytes of a struct winsize, ioctl_tty(2)
LONGEST = 65536  # bytes of data
HEAD = 5


def packet(kind: bytes, data: bytes, task: int = 0) -> bytes:
    """Return the bytes of a packet."""
    return kind + task.to_bytes(4, "big") + data


def winsize(figures: "Iterable[int]") -> bytes:
    """Return a struct winsize of rows, columns, and both in pixels."""
    return b"".join([number.to_bytes(2, sys.byteorder) for number in figures])


def split(raw: bytes) -> tuple[bytes, int, bytes]:
    """Return a packet's kind, task and data; the kind is empty for a malformed packet."""
    if len(raw) < HEAD:
        return b"", 0, b""
    return raw[:1], int.from_bytes(raw[1:HEAD], "big"), raw[HEAD:]
