"""A file written by a command all at once: the file appears whole or not at all.

The file replaces an old file of the name, and follows no link to anywhere else.
"""

import os
from typing import TYPE_CHECKING

from nodectl.client import safe_way
from nodectl.client.command import Failed

if TYPE_CHECKING:
    from collections.abc import Iterable


def open_directory(path: str) -> int:
    """Return a descriptor of the directory at this absolute path, for `write`. Raises OSError.

    Raises Failed where another user could lead root's command elsewhere.
    """
    if why := safe_way.why_not_root(path, whole=True):
        raise Failed(f"write into {path}: {why}")
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def sync(path: str) -> None:
    """Put onto the disk which files the directory at this path has. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write(
    directory: int, name: str, mode: int, chunks: "Iterable[bytes]", group: int = -1, *, synced: bool = False
) -> None:
    """Write the chunks to the file `name` in the directory, and replace an old file. Raises OSError.

    `group`: the number of the file's group, -1 for this process's. `synced`: it is on the disk at the end, and whole
    after a reset of the machine at any moment.
    """
    partial = f".{name[:200]}.{os.urandom(6).hex()}"
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        with open(fd, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            if group >= 0:
                os.fchown(fd, -1, group)
            os.fchmod(fd, mode)
            if synced:
                file.flush()
                os.fsync(fd)
        os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(partial, dir_fd=directory)
        raise
    if synced:
        os.fsync(directory)
