"""The parent directories of holders and agents of a user: made when missing, removed when empty.

Processes of the user do either at any time.
"""

from __future__ import annotations

import errno
import os

from nodectl.model.config import own_node

_TRIES = 1000


def make(*paths: str) -> None:
    """Make the directories, each inside the previous. Raises OSError, NotOurs."""
    for _ in range(_TRIES):
        if all(map(_is_there, paths)):
            return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), paths[0])


def _is_there(path: str) -> bool:
    """Make a directory; return False if this directory or the parent was removed meanwhile. Raises NotOurs, OSError.

    The owner is checked: nothing may be made inside another user's directory.
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
    """Remove the directories, the last first, up to a directory in use."""
    for path in reversed(paths):
        try:
            os.rmdir(path)
        except OSError:
            return
