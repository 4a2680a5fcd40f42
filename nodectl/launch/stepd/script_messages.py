"""Messages of the stepd to the user of a batch job, for which no client waits: lines in the script's stderr file.

A line waits until the script's program has begun: until then the task may still empty the file. Lines go through a pipe
to a process of the user's, which opens the file. The stepd never waits for the file: lines that do not fit into the
pipe, or that the process cannot write, are only in the log. Runs in the stepd, as root.
"""

import os

from nodectl.kernel import user_path
from nodectl.launch.stepd import user_helpers
from nodectl.launch.streams import filename
from nodectl.model.states import RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.launch.stepd.run import Run

_MOST_LINES = 1000
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK = 65536
_PATIENCE = 10.0  # seconds that the last lines may take, when the step is over


class ScriptMessages:
    """The lines of a step's script. `has_begun()` says whether the script's program runs or has run."""

    __slots__ = ("_has_begun", "_lines", "_pid", "_pipe", "_run")

    def __init__(self, run: "Run", has_begun: "Callable[[], bool]") -> None:
        self._run = run
        self._has_begun = has_begun
        self._lines: list[str] = []
        self._pipe = -1
        self._pid = 0  # of the process that writes

    def add(self, line: str) -> None:
        """Keep a line for `write`."""
        if len(self._lines) < _MOST_LINES:
            self._lines.append(line)

    def write(self) -> None:
        """Write the kept lines, once the program has begun. Called when nothing is half done: this may fork."""
        if self._lines and self._has_begun():
            self._write()

    def finish(self, wait: "Callable[[int, float], object]") -> None:
        """Write the kept lines at the end of the step, also where the program never began. Wait a while for the writer.

        The wait is `wait(pid, seconds)`.
        """
        if self._lines:
            self._write()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._run.private.remove(self._pipe)
            in_time = self._run.state == RUNNING
            patience = _PATIENCE if in_time else max(1.0, min(_PATIENCE, self._run.step.kill_wait))
            wait(self._pid, patience)

    def _write(self) -> None:
        step = self._run.step
        pattern = step.stderr or step.stdout
        text = "".join(f"{line}\n" for line in self._lines).encode("utf-8", "surrogateescape")
        self._lines.clear()
        if pattern in ("", "none", "all", "-"):
            return
        try:
            if self._pipe < 0:
                self._begin(filename.expand(pattern, step, 0))
            os.write(self._pipe, text)
        except OSError:
            pass  # no process, no room, or its user has killed it: the record has the reason of an end

    def _begin(self, path: str) -> None:
        """Start the writing process. Raises OSError."""
        umask = self._run.step.umask
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        try:
            self._pid = user_helpers.start(self._run, lambda: _append_all(reader, path, umask), (reader,))
        except OSError:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        self._pipe = writer
        self._run.private.append(writer)


def _append_all(reader: int, path: str, umask: int) -> None:
    os.umask(umask)
    while data := os.read(reader, _CHUNK):
        _append(path, data)


def _append(path: str, text: bytes) -> None:
    try:
        fd = user_path.open_file(path, _FLAGS)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)
    except OSError:
        pass  # the user's file, the user's disk
