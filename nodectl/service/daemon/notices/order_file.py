"""The file between daemon and courier, with the notices and the results: `runtime_dir`/notices/WAY-UID.

The first line is the order, as JSON. Each further line has room for the status of a notice. These lines exist from the
beginning: a disk that fills up later makes no courier send a notice twice. The courier holds the file's lock (flock(2))
as long as it lives, even after the end of its daemon. So no notice is sent twice, whenever a daemon is killed: the next
daemon waits for the lock, and then reads which notices were sent.
"""

import fcntl
import os

from nodectl.model.wire import lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_MOST = 64 << 20  # bytes
_WIDTH = 13  # bytes of a line: a status of 32 bits with its sign, the mark of a whole line, the line's end
_WHOLE = b"."


def write(path: str, order: "Mapping[str, Any]") -> int:
    """Write a new order and return a descriptor, which holds the lock. Raises OSError, also for a full disk."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        room = b" " * (_WIDTH - 1) + b"\n"
        _write(fd, lean_json.dumps(order).encode("ascii") + b"\n" + room * len(order["notices"]))
    except OSError:
        os.close(fd)
        raise
    return fd


def order_of(fd: int) -> "Mapping[str, object]":
    """Return the order, in the courier. Raises lean_json.BadJson, OSError."""
    return lean_json.load_object(_all(fd).partition(b"\n")[0])


def note(fd: int, place: int, status: int) -> None:
    """Note the notice at this place as sent, in the courier. Raises OSError."""
    begin = _all(fd).index(b"\n") + 1
    os.pwrite(fd, b"%11d%b\n" % (status, _WHOLE), begin + place * _WIDTH)


def _all(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _write(fd: int, text: bytes) -> None:
    """Write everything. If the disk takes only a part, the next write raises OSError."""
    while text:
        text = text[os.write(fd, text) :]


def is_held(path: str) -> bool:
    """Return True while a courier works on the order. Raises OSError where this is unknown now."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def told(path: str) -> "tuple[Mapping[str, object], dict[int, int]]":
    """Return the order, and the status of each sent notice by place; both empty for a torn or a missing file.

    Raises OSError where this is unknown now.
    """
    try:
        with open(path, "rb") as file:
            first, *lines = file.read(_MOST).split(b"\n")
        order = lean_json.load_object(first)
    except (FileNotFoundError, lean_json.BadJson):
        return {}, {}
    whole = ((place, line[:-1]) for place, line in enumerate(lines) if line.endswith(_WHOLE))
    return order, {place: int(status) for place, status in whole}
