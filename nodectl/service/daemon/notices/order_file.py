"""The file between daemon and courier, with the notices and the results: `runtime_dir`/notices/WAY-UID.

The first line is the order, JSON. Each further line belongs to a notice, and takes the status with which it was told:
these lines are there from the beginning, so that a disk which fills up meanwhile makes no courier tell anything twice.
The courier holds the file's lock (flock(2)) as long as it lives, also after the end of the daemon that has started it.
So nothing is told twice, whenever a daemon is killed: the next one waits for the lock, then reads what was told.
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
    """Write all: where the disk has room for a part only, the next write says so. Raises OSError."""
    while text:
        text = text[os.write(fd, text) :]


def is_held(path: str) -> bool:
    """Return True while a courier works on the order. Raises OSError where this cannot be learnt now."""
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
    """Return the order, and the status of each notice that was told, by place; both empty for a torn file, or none.

    Raises OSError where this cannot be learnt now.
    """
    try:
        with open(path, "rb") as file:
            first, *lines = file.read(_MOST).split(b"\n")
        order = lean_json.load_object(first)
    except (FileNotFoundError, lean_json.BadJson):
        return {}, {}
    whole = ((place, line[:-1]) for place, line in enumerate(lines) if line.endswith(_WHOLE))
    return order, {place: int(status) for place, status in whole}
