"""A directory of one process, in which others leave files for it; and those that dead ones have left behind.

Who has one holds a lock on it. It has its name from when it is locked on: so a directory of that name without a lock
is nobody's any more.

It is in a place where nobody else could put another in its stead: commands open their files there by their paths.
"""

import fcntl
import os
import stat
from binascii import hexlify

from nodectl.client.command import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make(candidates: "Iterable[str]", prefix: str) -> tuple[str, int]:
    """Makes one in the first of these places that can have it: its path, its descriptor. Raises Failed."""
    reason = "no directory for outputs"
    for place in map(os.path.realpath, candidates):
        name = f"{prefix}{hexlify(os.urandom(8)).decode()}"
        path, unnamed = os.path.join(place, name), os.path.join(place, f".{name}")
        try:
            if not is_safe(place):
                reason = f"make {path}: others may change what is there"
                continue
            os.mkdir(unnamed, 0o700)
            fd = os.open(unnamed, _OPEN)
            if not _is_ours(os.fstat(fd)):
                os.close(fd)
                reason = f"make {path}: another directory is there"
                continue
            _lock(fd)
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


def is_safe(place: str) -> bool:
    """Whether nobody but root and this user can rename or replace what this user has there. For root's command, to
    which anybody may be hostile, that goes for the directories above, too. Raises OSError.
    """
    place = os.path.realpath(place)
    while True:
        status = os.stat(place, follow_symlinks=False)
        if status.st_uid not in (0, os.geteuid()):
            return False
        if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
            return False
        if place == "/" or os.geteuid():
            return True
        place = os.path.dirname(place)


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OF_OTHERS


def sweep(place: str, prefix: str) -> None:
    """Removes what this user's dead processes have left behind in a place."""
    try:
        if not is_safe(place):
            return
        with os.scandir(place) as entries:
            found = [
                entry.path
                for entry in entries
                if entry.name.startswith(prefix) and _is_ours(entry.stat(follow_symlinks=False))
            ]
    except OSError:
        return
    for path in found:
        try:
            fd = os.open(path, _OPEN)
        except OSError:
            continue
        try:
            if _is_ours(os.fstat(fd)) and _lock(fd):
                for name in os.listdir(fd):
                    os.unlink(name, dir_fd=fd)
                os.rmdir(path)
        except OSError:
            continue  # commands of its still write there; the next one finds it
        finally:
            os.close(fd)
