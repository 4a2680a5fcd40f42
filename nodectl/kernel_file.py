"""Reading and writing files that the kernel makes up (/proc, /sys, cgroups) and other small ones: one open, one read
or write.

Without Python's buffered and text layers: their first use after a fork copies some hundred pages, a millisecond in
each stepd and task.
"""

import os

_CHUNK = 65536


def read(path: str) -> bytes:
    """The whole file. Raises OSError with the path."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _CHUNK)
        if len(data) < _CHUNK:
            return data  # the kernel's files end with their first short read
        while more := os.read(fd, _CHUNK):
            data += more
        return data
    finally:
        os.close(fd)


def write(path: str, data: bytes) -> None:
    """One write(2), as the kernel's files want it; the file must exist. Raises OSError with the path."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(fd)
