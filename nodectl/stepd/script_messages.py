"""What a stepd says to the user of a batch job, of whom no client waits: lines in the script's file for errors.

Runs in the stepd, which becomes the user to open the file. A line waits until the script's program has begun: until
then the task may still empty the file. Nothing waits for the file: where it cannot take a line, the log alone has it.
"""

import os

from nodectl.kernel import user_path
from nodectl.task import filename

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.stepd.run import Run

_MOST_LINES = 1000
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY


class ScriptMessages:
    """The lines of one step. `has_begun()` says whether its program runs or has run."""

    __slots__ = ("_has_begun", "_lines", "_run")

    def __init__(self, run: "Run", has_begun: "Callable[[], bool]") -> None:
        self._run = run
        self._has_begun = has_begun
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        """Writes a line, or keeps it for later."""
        if len(self._lines) < _MOST_LINES:
            self._lines.append(line)
        if self._has_begun():
            self.write()

    def write(self) -> None:
        """Writes what was kept."""
        step = self._run.step
        pattern = step.stderr or step.stdout
        if not self._lines or pattern in ("", "none", "all", "-"):
            return
        text = "".join(f"{line}\n" for line in self._lines).encode("utf-8", "surrogateescape")
        self._lines.clear()
        path = filename.expand(pattern, step, 0)
        self._run.as_user(lambda: _append(path, text, step.umask))


def _append(path: str, text: bytes, umask: int) -> None:
    previous = os.umask(umask)
    try:
        fd = user_path.open_file(path, _FLAGS)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)
    except OSError:
        pass  # the user's file, the user's disk: the record has the reason of an end
    finally:
        os.umask(previous)
