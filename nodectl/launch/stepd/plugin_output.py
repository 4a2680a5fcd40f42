"""The stderr of plugins' hooks, in a stepd, and in a task before the task has streams.

Lines go to the user, as with Slurm, and with the step's number to the log.

Stderr is a file of the step, J.S.stderr, and no pipe: the process that would read the pipe is often the one that
writes. The stepd, as root, reads the file between hooks, while tasks and processes started by plugins may append to it.
So the stepd keeps what it has read, and the file's first eight bytes say how far that is. The daemon logs what a dead
stepd has not read.
"""

import os

from nodectl import messages

_STDERR = 2
_MOST = 1 << 16  # bytes at a time
_LONGEST = 1 << 20  # bytes that were read, after which the file begins anew; a line of this moment may be lost
_HEAD = 8
_SUFFIX = ".stderr"


class PluginOutput:
    """The file serving as this process's stderr. `log` is a descriptor of the earlier stderr."""

    __slots__ = ("_fd", "_taken", "log")

    def __init__(self, directory: int, name: str) -> None:
        """Open the file as stderr. Raises OSError.

        `directory` is a descriptor, `name` is that of the step's files in it.
        """
        flags = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(name + _SUFFIX, os.O_RDWR | flags, 0o600, dir_fd=directory)
        os.ftruncate(self._fd, 0)
        self._takes(_HEAD)
        appending = os.open(name + _SUFFIX, os.O_WRONLY | os.O_APPEND | flags, 0o600, dir_fd=directory)
        self.log = os.dup(_STDERR)
        os.dup2(appending, _STDERR)
        os.close(appending)

    def private(self) -> tuple[int, int]:
        """Return the descriptors withheld from tasks."""
        return self._fd, self.log

    def take(self) -> list[str]:
        """Return the lines written since the last call."""
        try:
            size = os.lseek(self._fd, 0, os.SEEK_END)
            if size <= self._taken:
                return []
            # Up to `size` and no further: a line that came meanwhile would be passed on now and again.
            data = os.pread(self._fd, min(_MOST, size - self._taken), self._taken)
            lines = lines_of(data, size - self._taken)
            if size > _LONGEST:
                os.ftruncate(self._fd, _HEAD)
                size = _HEAD
            self._takes(size)
        except OSError:
            return []  # a plugin has closed a descriptor that it did not open
        return lines

    def _takes(self, end: int) -> None:
        os.pwrite(self._fd, end.to_bytes(_HEAD, "little"), 0)
        self._taken = end


def log_rest(stem: str) -> None:
    """Log the lines not yet taken by a dead stepd. Runs in the daemon.

    `stem` is the path of the step's files without their suffixes.
    """
    try:
        with open(stem + _SUFFIX, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            taken = int.from_bytes(file.read(_HEAD), "little")
            if not _HEAD <= taken <= size:
                taken = 0  # of an older stepd's, which truncated it
            file.seek(taken)
            data = file.read(_MOST)
            file.truncate(0)
    except OSError:
        return
    step = os.path.basename(stem)
    facts = {"job": step.partition(".")[0], "step": step}
    for line in lines_of(data, size - taken):
        messages.to_log(f"nodectl stepd: step {step}: {messages.printable(line)}", "plugin-output", **facts)


def lines_of(data: bytes, size: int) -> list[str]:
    """Return the lines of the beginning `data` of a text of `size` bytes."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    if not lines[-1]:
        lines.pop()
    return [*lines, f"... and {size - len(data)} bytes more"] if size > len(data) else lines
