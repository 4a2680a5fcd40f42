"""Writes a file for `nodectl bcast`: in the job's container, as the job's user (`enter.py`)."""

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.model.step import Step

_CHUNK = 1 << 20
_OWN_DESCRIPTORS = "/proc/self/fd"


def write(request: "Mapping[str, object]", step: "Step", fds: "list[int]") -> None:
    """Copies the descriptor's file to the path, whole or not at all. It replaces a file only with `force`."""
    if not stat.S_ISREG(os.fstat(fds[0]).st_mode):
        raise OSError(errno.EINVAL, "what came with the call is no regular file")
    path = os.path.join(step.cwd, str(request["path"]))
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _write_whole(request, fds[0], directory, os.path.basename(path))
    except OSError as error:  # its own path, if any, is that of the partial file
        why = f"{error.strerror}; --force replaces it" if error.errno == errno.EEXIST else error.strerror
        raise OSError(error.errno, why, path) from None


def _write_whole(request: "Mapping[str, object]", source: int, directory: int, name: str) -> None:
    partial = f".{name[:200]}.{os.urandom(6).hex()}"
    fd = _open_nameless(directory)
    nameless = fd >= 0
    if not nameless:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        while data := os.read(source, _CHUNK):
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        os.fchmod(fd, int(str(request["mode"])) & 0o777)
        if nameless:
            os.link(f"{_OWN_DESCRIPTORS}/{fd}", partial, dst_dir_fd=directory, follow_symlinks=True)
        if request["force"]:
            os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            os.link(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
            os.unlink(partial, dir_fd=directory)
    except BaseException:
        try:
            os.unlink(partial, dir_fd=directory)
        except FileNotFoundError:
            pass  # it had no name yet
        raise


def _open_nameless(directory: int) -> int:
    """A file that vanishes when its writer is killed; -1 where the file system has no such files."""
    if not os.access(_OWN_DESCRIPTORS, os.X_OK):
        return -1  # without /proc it could not get a name
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
    except OSError:
        return -1
