"""Directories in which holders and agents of a user have theirs: made where they are missing, removed where nothing is
in them. Processes of the user's do either at any time.
"""

from __future__ import annotations

import errno
import os

from nodectl.config import own_node

_TRIES = 1000


def make(*paths: str) -> None:
    """Each is in the one before. Raises OSError, NotOurs."""
    for _ in range(_TRIES):
        if all(map(_is_there, paths)):
            return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), paths[0])


def _is_there(path: str) -> bool:
    """Makes it; False where it, or the one above, was removed meanwhile. Nothing is made in what may be somebody
    else's.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        return False
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    own_node.look_at(path, status)
    return True


def remove(*paths: str) -> None:
    """From the last one on, up to one in which there is something."""
    for path in reversed(paths):
        try:
            os.rmdir(path)
        except OSError:
            return
