"""The directory in which commands leave files for this process, and the cleanup after dead processes.

The owner of a directory holds a lock on it. The directory gets its name only after the lock, so a directory of that
name without a lock has no owner any more.

The directory lies in a place where no other user could replace it, because commands open their files there by path.
"""

import fcntl
import os
import stat
from binascii import hexlify
from typing import TYPE_CHECKING

from nodectl.client.command import Failed

if TYPE_CHECKING:
    from collections.abc import Iterable

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make(candidates: "Iterable[str]", prefix: str) -> tuple[str, int]:
    """Make a directory in the first usable place, and return the path and the descriptor. Raises Failed."""
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
        return False  # the directory has an owner; or this file system has no locks, and no sweep removes it
    return True


def is_safe(place: str) -> bool:
    """Return True if only root and this user can rename or replace this user's files in `place`. Raises OSError.

    For root's command, to which any user may be hostile, the parent directories must be safe, too.
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
    """Remove the directories left in `place` by this user's dead processes."""
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
