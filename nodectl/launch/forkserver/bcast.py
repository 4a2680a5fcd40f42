"""Writes a file for `nodectl bcast`, in the job's container and as the job's user (`enter.py`).

On the nodes of a cluster a task of that user writes the file.
"""

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
    """Copy the file of `fds[0]` to the path, whole or not at all. An existing file is replaced only with `force`."""
    if not stat.S_ISREG(os.fstat(fds[0]).st_mode):
        raise OSError(errno.EINVAL, "what came with the call is no regular file")
    times: tuple[int, ...] = tuple(request.get("times") or ())  # type: ignore[arg-type]  # the daemon has looked
    mode, force = int(str(request["mode"])), bool(request["force"])
    write_whole(fds[0], os.path.join(step.cwd, str(request["path"])), mode=mode, force=force, times=times)


def write_whole(
    source: int, path: str, *, mode: int, force: bool, size: int | None = None, times: "tuple[int, ...]" = ()
) -> None:
    """Copy `source` up to the end of file to `path`, and check the length against `size` if given.

    `times` are the times of access and of modification, in nanoseconds. Raises OSError naming the path; then no part of
    the file is left there.
    """
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _write(source, directory, os.path.basename(path), mode=mode, force=force, size=size, times=times)
    except OSError as error:  # the error's own path, if any, is the partial file
        why = f"{error.strerror}; --force replaces it" if error.errno == errno.EEXIST else error.strerror
        raise OSError(error.errno, why, path) from None


def _write(
    source: int, directory: int, name: str, *, mode: int, force: bool, size: int | None, times: "tuple[int, ...]"
) -> None:
    partial = f".{name[:200]}.{os.urandom(6).hex()}"
    fd = _open_nameless(directory)
    nameless = fd >= 0
    if not nameless:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    written = 0
    try:
        while data := os.read(source, _CHUNK):
            written += len(data)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        if size not in (None, written):
            raise OSError(errno.EIO, f"{written} bytes of {size} have come")
        os.fchmod(fd, mode & 0o777)
        if times:
            os.utime(fd, ns=(times[0], times[1]))
        if nameless:
            os.link(f"{_OWN_DESCRIPTORS}/{fd}", partial, dst_dir_fd=directory, follow_symlinks=True)
        if force:
            os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            os.link(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
            os.unlink(partial, dir_fd=directory)
    except BaseException:
        try:
            os.unlink(partial, dir_fd=directory)
        except FileNotFoundError:
            pass  # the file had no name yet
        raise


def _open_nameless(directory: int) -> int:
    """Open a nameless file, which vanishes if the writer is killed. Return -1 if the file system has none."""
    if not os.access(_OWN_DESCRIPTORS, os.X_OK):
        return -1  # without /proc the file could not get a name
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
    except OSError:
        return -1
