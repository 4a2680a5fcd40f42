"""A directory of one process, in which others leave files for it; and those that dead ones have left behind.

Who has one holds a lock on it. It has its name from when it is locked on: so a directory of that name without a lock
is nobody's any more.
"""

import fcntl
import os
from binascii import hexlify

from nodectl.client.command import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make(candidates: "Iterable[str]", owner: tuple[int, int] | None, prefix: str) -> tuple[str, int]:
    """Makes one in the first of these places that can have it: its path, its descriptor. Raises Failed."""
    reason = "no directory for outputs"
    for place in candidates:
        name = f"{prefix}{hexlify(os.urandom(8)).decode()}"
        path, unnamed = f"{os.path.abspath(place)}/{name}", f"{os.path.abspath(place)}/.{name}"
        try:
            os.mkdir(unnamed, 0o700)
            fd = os.open(unnamed, _OPEN)
            _lock(fd)
            if owner is not None:
                os.fchown(fd, *owner)
            os.rename(unnamed, path)
        except OSError as error:
            reason = f"make {path}: {error.strerror}"
            continue
        return path, fd
    raise Failed(reason, 255)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # it is somebody's; or there are no locks here, then nobody finds it without one
    return True


def sweep(place: str, prefix: str) -> None:
    """Removes what this user's dead processes have left behind in a place."""
    try:
        with os.scandir(place) as entries:
            found = [
                entry.path
                for entry in entries
                if entry.name.startswith(prefix) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            ]
    except OSError:
        return
    for path in found:
        try:
            fd = os.open(path, _OPEN)
        except OSError:
            continue
        try:
            if os.fstat(fd).st_uid == os.geteuid() and _lock(fd):
                for name in os.listdir(fd):
                    os.unlink(name, dir_fd=fd)
                os.rmdir(path)
        except OSError:
            continue  # commands of its still write there; the next one finds it
        finally:
            os.close(fd)
