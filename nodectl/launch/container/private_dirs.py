"""The private directories of a job, as /tmp: made outside, below the job's directory, and mounted inside.

A mount is made as a descriptor and moved over another descriptor. The path of its target is opened without following
symbolic links: below a directory of the user's a link could lead to /etc.
"""

import os

from nodectl.kernel import _namespace
from nodectl.launch.container.job_dir import JobDir, open_plain
from nodectl.launch.container.settings import SHM, PrivateDir

_ATTRIBUTES = {
    "ro": _namespace.MOUNT_ATTR_RDONLY,
    "nosuid": _namespace.MOUNT_ATTR_NOSUID,
    "nodev": _namespace.MOUNT_ATTR_NODEV,
    "noexec": _namespace.MOUNT_ATTR_NOEXEC,
}
_TMPFS = _ATTRIBUTES["nosuid"] | _ATTRIBUTES["nodev"]


def make(
    job_dir: JobDir, dirs: "list[PrivateDir]", uid: int, gid: int, *, may_exist: bool = False
) -> "list[tuple[str, int]]":
    """Return the path of each directory with a mount not attached yet. Raises OSError.

    `may_exist`: an earlier step of the job has made them perhaps.
    """
    made: list[tuple[str, int]] = []
    try:
        for one in sorted(dirs, key=lambda one: one.path == SHM):
            made.append((one.path, _tmpfs(one) if one.tmpfs else _storage(job_dir, one, uid, gid, may_exist)))
    except BaseException:
        close(made)
        raise
    return made


def mount(made: "list[tuple[str, int]]", *, shared: bool) -> None:
    """Separate the new mount namespace, which the caller is in, from the host's and attach each mount. Raises OSError.

    `shared`: what the host mounts later appears inside, too. What is mounted inside never appears on the host.
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
    """Close the mounts. Mounts not attached vanish."""
    while made:
        os.close(made.pop()[1])


def _tmpfs(one: PrivateDir) -> int:
    options = [("mode", "1777"), *([("size", one.size)] if one.size else [])]
    return _namespace.new_mount("tmpfs", options, _TMPFS | _attributes(one))


def _storage(job_dir: JobDir, one: PrivateDir, uid: int, gid: int, may_exist: bool) -> int:
    fd = job_dir.make_dir(one.path.replace("/", "_"), uid, gid, may_exist=may_exist)
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
