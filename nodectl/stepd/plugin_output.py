"""What plugins' hooks write to stderr in a stepd, and in a task before its streams are its own: the user hears it, as
with Slurm, and the log keeps it with the step's number.

It goes into a file of the step's, J.S.stderr, because the one who would read a pipe is often the one who writes. The
stepd, as root, takes out what is there between hooks; what one that died has left there the daemon puts into the log.
"""

import os

from nodectl import messages

_STDERR = 2
_MOST = 1 << 16  # bytes at a time
_SUFFIX = ".stderr"


class Overheard:
    """The file, as this process's stderr. `log` is a descriptor of what that was before."""

    __slots__ = ("_fd", "log")

    def __init__(self, directory: int, name: str) -> None:
        """`name` of the step's files in the directory of a descriptor. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(name + _SUFFIX, flags, 0o600, dir_fd=directory)
        self.log = os.dup(_STDERR)
        os.dup2(self._fd, _STDERR)

    def private(self) -> tuple[int, int]:
        """What no task has any business with."""
        return self._fd, self.log

    def take(self) -> list[str]:
        """What has been written since it was asked last, a line each."""
        try:
            size = os.lseek(self._fd, 0, os.SEEK_END)
            if not size:
                return []
            data = os.pread(self._fd, _MOST, 0)
            os.ftruncate(self._fd, 0)  # who writes appends
        except OSError:
            return []  # a plugin has closed what it did not open
        return _lines(data, size)


def tell_rest(stem: str) -> None:
    """In the daemon, of a step whose stepd has died: what it did not live to take is the log's, once. `stem` is the
    path of the step's files.
    """
    try:
        with open(stem + _SUFFIX, "r+b") as file:
            data = file.read(_MOST)
            size = os.fstat(file.fileno()).st_size
            file.truncate(0)
    except OSError:
        return
    for line in _lines(data, size):
        messages.to_log(f"nodectl stepd: step {os.path.basename(stem)}: {messages.printable(line)}")


def _lines(data: bytes, size: int) -> list[str]:
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    if not lines[-1]:
        lines.pop()
    return [*lines, f"... and {size - len(data)} bytes more"] if size > len(data) else lines
