"""What plugins' hooks write to stderr in a stepd, and in a task before it has its own streams. It goes to the user, as
with Slurm, and with the step's number to the log.

Stderr is a file of the step, J.S.stderr, and no pipe: the process that would read the pipe is often the one that
writes. The stepd, as root, empties the file between hooks. The daemon logs what a stepd that died has left in it.
"""

import os

from nodectl import messages

_STDERR = 2
_MOST = 1 << 16  # bytes at a time
_SUFFIX = ".stderr"


class PluginOutput:
    """The file as this process's stderr. `log` is a descriptor of what stderr was before."""

    __slots__ = ("_fd", "log")

    def __init__(self, directory: int, name: str) -> None:
        """`directory` is a descriptor, `name` is that of the step's files in it. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(name + _SUFFIX, flags, 0o600, dir_fd=directory)
        self.log = os.dup(_STDERR)
        os.dup2(self._fd, _STDERR)

    def private(self) -> tuple[int, int]:
        """Descriptors that no task may have."""
        return self._fd, self.log

    def take(self) -> list[str]:
        """The lines that were written since the last call."""
        try:
            size = os.lseek(self._fd, 0, os.SEEK_END)
            if not size:
                return []
            data = os.pread(self._fd, _MOST, 0)
            os.ftruncate(self._fd, 0)  # plugins append
        except OSError:
            return []  # a plugin has closed what it did not open
        return _lines(data, size)


def log_rest(stem: str) -> None:
    """In the daemon, for a step whose stepd has died: logs what the stepd has not taken. `stem` is the path of the
    step's files without their suffixes.
    """
    try:
        with open(stem + _SUFFIX, "r+b") as file:
            data = file.read(_MOST)
            size = os.fstat(file.fileno()).st_size
            file.truncate(0)
    except OSError:
        return
    step = os.path.basename(stem)
    facts = {"job": step.partition(".")[0], "step": step}
    for line in _lines(data, size):
        messages.to_log(f"nodectl stepd: step {step}: {messages.printable(line)}", "plugin-output", **facts)


def _lines(data: bytes, size: int) -> list[str]:
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    if not lines[-1]:
        lines.pop()
    return [*lines, f"... and {size - len(data)} bytes more"] if size > len(data) else lines
