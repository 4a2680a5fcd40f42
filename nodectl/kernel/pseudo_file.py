"""Reading and writing of small files, mostly the kernel's (/proc, /sys, cgroups): one open, one read or write.

Without Python's buffered and text layers: their first use after a fork copies some hundred pages, a millisecond in each
stepd and task.
"""

import errno
import os

_CHUNK = 65536
_PAGE = 4096  # with a larger buffer the kernel clears as much memory before it returns a number of /proc/sys
_SURELY_ALL = 2048  # bytes: a read gives a page at most, in whole lines, and none of those that are read here is longer


_NOTHING = "\0"  # begins no path


class _Held:
    prefix = _NOTHING
    fd: int | None = None


def hold(directory: str) -> None:
    """Reach everything below `directory` through a descriptor from now on, in this process and all children.

    A plugin may give the process another root, in which the directory is not to be found. Raises OSError.
    """
    _Held.fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _Held.prefix = f"{directory}/"


def let_go() -> None:
    """Close the held descriptor: from now on paths below the directory are used unchanged."""
    if _Held.fd is not None:
        os.close(_Held.fd)
        _Held.fd, _Held.prefix = None, _NOTHING


def held() -> "tuple[int, ...]":
    """Return the held descriptor, () for none."""
    return () if _Held.fd is None else (_Held.fd,)


def at(path: str) -> tuple[str, int | None]:
    """Return `path` in the form for a system call: (path, dir_fd)."""
    if path.startswith(_Held.prefix):
        return path[len(_Held.prefix) :], _Held.fd
    return path, None


def open_at(path: str, flags: int) -> int:
    """Open an existing file like open(2), closed at an exec. Raises OSError with the path."""
    name, directory = at(path)
    try:
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        error.filename = path
        raise


def read(path: str) -> bytes:
    """Return the whole file, which has no line longer than half a page. Raises OSError with the path."""
    fd = open_at(path, os.O_RDONLY)
    try:
        data = os.read(fd, _PAGE)
        return data if len(data) < _SURELY_ALL else data + read_on(fd)
    except OSError as error:
        raise _named(error, path) from None
    finally:
        os.close(fd)


def read_if_any(path: str) -> bytes:
    """Return the whole file, b"" where the kernel has none, as without a controller."""
    try:
        return read(path)
    except OSError:
        return b""


def counters(path: str) -> dict[str, int]:
    """Return the numbers of a file of lines `NAME NUMBER`, {} where the kernel has none."""
    rows = (line.partition(b" ") for line in read_if_any(path).splitlines())
    return {name.decode(): int(value) for name, _, value in rows}


def read_on(fd: int) -> bytes:
    """Return the rest of the file, for any lengths of lines: the kernel gives a page at a time. Raises OSError."""
    data = b""
    while more := os.read(fd, _CHUNK):
        data += more
    return data


def write(path: str, data: bytes) -> None:
    """Write in a single write(2), as the kernel's files want; the file must exist. Raises OSError with the path."""
    fd = open_at(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    except OSError as error:
        raise _named(error, path) from None
    finally:
        os.close(fd)


def _named(error: OSError, path: str) -> OSError:
    """Return the error with the path: FileNotFoundError where the file's cgroup was removed after the open (ENODEV)."""
    number = error.errno or 0
    if number == errno.ENODEV:
        name, directory = at(os.path.dirname(path))
        try:
            os.stat(name, dir_fd=directory)
        except OSError:
            number = errno.ENOENT
    return OSError(number, os.strerror(number), path)
