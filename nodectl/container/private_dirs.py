"""The directories that a job has for itself: made outside, where their storage lies, and mounted inside.

A mount is made as a descriptor and put over a descriptor. The place where it goes is walked without following links:
one below a directory of the user's could otherwise be made to lead to /etc.
"""

import os

from nodectl.container.job_dir import Place, open_plain
from nodectl.container.settings import SHM, PrivateDir
from nodectl.kernel import _namespace

_ATTRIBUTES = {
    "ro": _namespace.MOUNT_ATTR_RDONLY,
    "nosuid": _namespace.MOUNT_ATTR_NOSUID,
    "nodev": _namespace.MOUNT_ATTR_NODEV,
    "noexec": _namespace.MOUNT_ATTR_NOEXEC,
}
_TMPFS = _ATTRIBUTES["nosuid"] | _ATTRIBUTES["nodev"]


def make(place: Place, dirs: "list[PrivateDir]", uid: int, gid: int) -> "list[tuple[str, int]]":
    """For each directory its path and a mount that is in no tree yet. Raises OSError."""
    made: list[tuple[str, int]] = []
    try:
        for one in sorted(dirs, key=lambda one: one.path == SHM):
            made.append((one.path, _tmpfs(one) if one.tmpfs else _storage(place, one, uid, gid)))
    except BaseException:
        close(made)
        raise
    return made


def mount(made: "list[tuple[str, int]]", *, shared: bool) -> None:
    """In the new mount namespace: parts it from the host's and puts each mount in its place. Raises OSError.

    `shared`: what the host mounts later appears inside too; nothing ever goes the other way.
    """
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if shared:
            _namespace.set_mount(root, 0, _namespace.MS_SLAVE, True)
            _namespace.set_mount(root, 0, _namespace.MS_SHARED, True)
        else:
            _namespace.set_mount(root, 0, _namespace.MS_PRIVATE, True)
        for path, fd in made:
            target = open_plain(root, path[1:])
            try:
                _namespace.move_mount(fd, target)
            except OSError as error:
                raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
            finally:
                os.close(target)
    finally:
        os.close(root)


def close(made: "list[tuple[str, int]]") -> None:
    """Lets go of the mounts; those that are in no tree vanish."""
    while made:
        os.close(made.pop()[1])


def _tmpfs(one: PrivateDir) -> int:
    options = [("mode", "1777"), *([("size", one.size)] if one.size else [])]
    return _namespace.new_mount("tmpfs", options, _TMPFS | _attributes(one))


def _storage(place: Place, one: PrivateDir, uid: int, gid: int) -> int:
    fd = place.make_dir(one.path.replace("/", "_"), uid, gid)
    try:
        made = _namespace.clone_mount(fd)
        _namespace.set_mount(made, _attributes(one), 0, False)
        return made
    finally:
        os.close(fd)


def _attributes(one: PrivateDir) -> int:
    value = 0
    for name in one.options:
        value |= _ATTRIBUTES[name]
    return value
