"""The state file of a select plugin without state: a magic number and a version.

They reveal a directory of another plugin or of a later release. The file is written whole or not at all. In the daemon,
as root, in a directory that is root's.
"""

from __future__ import annotations

import errno
import os

from nodectl.plugin_api import PluginError
from nodectl.selection.buffer import BadBuffer, Buf

_LARGEST = 4096


def save(directory: str, name: str, magic: int, version: int) -> None:
    """Write the file. Raises PluginError."""
    buffer = Buf()
    buffer.pack32(magic)
    buffer.pack16(version)
    try:
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _write(at, name, bytes(buffer))
        finally:
            os.close(at)
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"{directory}/{name}: {error.strerror}") from error


def _write(at: int, name: str, data: bytes) -> None:
    new = f".{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(new, flags, 0o600, dir_fd=at)
    try:
        if os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(new, name, src_dir_fd=at, dst_dir_fd=at)
    os.fsync(at)


def check(directory: str, name: str, magic: int, version: int) -> None:
    """Read the file again, if present. Raises PluginError for content not written by `save`."""
    path = os.path.join(directory, name)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the first start
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"{path}: {error.strerror}") from error
    try:
        buffer = Buf(os.read(file, _LARGEST))
        found = buffer.unpack32(), buffer.unpack16()
    except (OSError, BadBuffer) as error:
        raise PluginError(errno.EIO, f"{path}: {error}") from error
    finally:
        os.close(file)
    if found[0] != magic:
        raise PluginError(errno.EINVAL, f"{path} is no state of this plugin: its magic number is {found[0]:#x}")
    if found[1] != version:
        raise PluginError(errno.EINVAL, f"{path} has version {found[1]}; this plugin reads version {version}")
