"""Safety of paths for root's command: only root and this user may control the path.

Root's command must not write where another user's directories and links lead.
"""

import os
import stat

from nodectl.messages import printable

_MOST_LINKS = 40  # as the kernel follows
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def why_not_root(path: str, *, whole: bool = False) -> str:
    """Return the reason why root must not write there; "" where writing is safe, and for non-root users.

    See `stranger_on`.
    """
    if os.geteuid() != 0 or not (place := stranger_on(path, whole=whole)):
        return ""
    why = f"{printable(place)} is in another user's hands, who could lead root's commands elsewhere"
    return f"{why}: let the whole command be that user's"


def stranger_on(path: str, *, whole: bool = False) -> str:
    """Return the first unsafe place on the existing part of this absolute path, "" for none. Raises OSError.

    A place is unsafe if another user owns it, or other users may replace its contents. With `whole`, the whole path
    must exist: other users may be quicker to make the missing part.
    """
    way, left, links = "/", _parts(path), 0
    if not _is_ours(os.lstat("/")):
        return "/"
    while left:
        name = left.pop(0)
        if name == "..":
            way = os.path.dirname(way)
            continue
        place = os.path.join(way, name)
        try:
            status = os.lstat(place)
        except FileNotFoundError:
            if whole:
                raise
            return ""
        if not _is_ours(status):
            return place
        if not stat.S_ISLNK(status.st_mode):
            way = place
            continue
        links += 1
        if links > _MOST_LINKS:
            return place
        target = os.readlink(place)
        left = _parts(target) + left
        way = "/" if target.startswith("/") else way
    return ""


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _is_ours(status: os.stat_result) -> bool:
    """Return True if only root and this user own and may change the place.

    In a directory like /tmp each user may change only files of his own.
    """
    if status.st_uid not in (0, os.geteuid()):
        return False
    return stat.S_ISLNK(status.st_mode) or not status.st_mode & _OTHERS_WRITE or bool(status.st_mode & stat.S_ISVTX)
