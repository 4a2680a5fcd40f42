"""The flight recorder: a JSON object a line for every call of a launch, written at the call's return.

A file per step, opened before the first fork and appended to by the daemon, the stepd and the tasks; a line is one
write(2) of less than PIPE_BUF bytes on a file opened with O_APPEND, so lines of several processes never mix and a
killed process loses no finished line. Times are CLOCK_MONOTONIC in nanoseconds, durations in microseconds.
"""

import os
import time

from nodectl.kernel import _kernel
from nodectl.model.wire.lean_json import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from nodectl.model.launch_order import Hook

FIELDS = (
    "t", "call", "kind", "plugin", "process", "pid", "task",
    "ruid", "euid", "rgid", "egid", "groups", "caps", "affinity", "cgroup", "rc", "us",
)  # fmt: skip

now = time.monotonic_ns


class Recorder:
    """The recorder of a process. `fd` is the step's trace file, or -1 for a disabled trace."""

    __slots__ = ("_cgroup", "_process", "fd", "process", "task")

    def __init__(self, fd: int, process: str, *, cgroup: "str | None" = None, task: "int | None" = None) -> None:
        self.fd = fd
        self.process = process
        self.task = task
        self._cgroup = cgroup
        self._process = ""  # what every line says of the process

    def begin(self, hook: "Hook") -> int:
        """Return the time at which a call of `hook` begins, for `write`. Raises RuntimeError in another's process."""
        if hook.process != self.process:
            self._refuse(hook)
        return now()

    def write(
        self, hook: "Hook", started: int, *, plugin: str = "", task: "int | None" = None, rc: int = 0, note: str = ""
    ) -> None:
        """Record the call of `hook` from `started` (monotonic ns) until now with the result `rc`.

        Identity, capabilities and affinity are read from the kernel at this moment; they are not the intended values.
        """
        if self.fd < 0:
            return
        head, tail = self.around(hook, task)
        # A disk that is full costs the trace its lines, not the step its life.
        _kernel.write_row(
            self.fd, started, f"{head}{quoted(plugin)}{tail}", str(rc), f'"note":{quoted(note[:512])}' if note else ""
        )

    def around(self, hook: "Hook", task: "int | None") -> tuple[str, str]:
        """Return the facts of call and process before and after the plugin's name in a line; "" without a trace."""
        if self.fd < 0:
            return "", ""
        if task is None:
            task = self.task
        process = self._process or self._look()
        return f'{hook.facts},"plugin":', f',{process},"task":{"null" if task is None else task}'

    def facts(self, hook: "Hook", plugin: str) -> str:
        """Return a line's facts of the call, up to the pid of a future task; "" without a trace.

        Raises RuntimeError in another's process.
        """
        if hook.process != self.process:
            self._refuse(hook)
        if self.fd < 0:
            return ""
        return f'{hook.facts},"plugin":{quoted(plugin)},"process":"{self.process}","pid":'

    def of_process(self) -> str:
        """Return the facts of the process behind the pid in every line, "" without a trace."""
        if self.fd < 0:
            return ""
        if self._cgroup is None:
            self._cgroup = _kernel.own_cgroup()
        return f',"cgroup":{quoted(self._cgroup)},"task":{self.task}'

    def _refuse(self, hook: "Hook") -> "NoReturn":
        raise RuntimeError(f"{hook.call} belongs to the {hook.process}, not to the {self.process}")

    def _look(self) -> str:
        if self._cgroup is None:
            self._cgroup = _kernel.own_cgroup()
        self._process = f'"process":"{self.process}","pid":{os.getpid()},"cgroup":{quoted(self._cgroup)}'
        return self._process
