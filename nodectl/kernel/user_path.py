"""Paths named by users, opened by a process of ours running as the user.

/proc/self/fd leads to everything that this process has open: files of root's, directories outside of the job's
container. So /proc's links to open files are not followed, at any place in the path.
"""

import errno
import os

from nodectl.kernel import _kernel


def open_file(path: str, flags: int) -> int:
    """Open a file, closed at an exec. A new file has the mode 0666 less the umask. Raises OSError."""
    return _open(path, flags, 0o666 if flags & os.O_CREAT else 0)


def empty_file(path: str) -> None:
    """Truncate a regular file; unlike open(2) alone, never wait for the other end of a FIFO. Raises OSError."""
    fd = _open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def go_to(directory: str) -> None:
    """Change the working directory, as chdir(2). Raises OSError."""
    fd = _open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        os.fchdir(fd)
    finally:
        os.close(fd)


def _open(path: str, flags: int, mode: int = 0) -> int:
    try:
        return _kernel.open_named(path, flags, mode)
    except OSError as error:
        words = os.strerror(error.errno or 0)
        if error.errno == errno.ELOOP:
            words += ", or one of /proc to what a process has open"
        raise OSError(error.errno, words, path) from None
