"""What the stages of a task share, and how a stage ends the task.

The stepd makes it before the first fork; the task's own process uses it.
"""

import os

from nodectl.confine.confinement import Confinement
from nodectl.model.launch_order import ROWS
from nodectl.plugin_host.caller import PluginCaller
from nodectl.task.placement import Placement, must_wait
from nodectl.tracing.recorder import Recorder, now
from nodectl.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.model.step import Task
    from nodectl.plugin_host.caller import Outcome
    from nodectl.task import rlimits
    from nodectl.task.step_context import StepContext

_LONGEST_REPORT = 3000  # below PIPE_BUF: reports of several tasks never mix


class TaskEnds(Exception):
    """The task ends before its program has begun, with this exit status. str() is the reason, "" for none."""

    def __init__(self, reason: str, status: int = 1) -> None:
        super().__init__(reason)
        self.status = status


class Child:
    """One task, as its stages know it."""

    __slots__ = (
        "caller", "cgroup", "confinement", "context", "gate", "hard_limits", "placement", "recorder", "report", "slot",
        "step", "stepd", "stepd_fds", "task",
    )  # fmt: skip

    def __init__(  # everything that the stepd has made for it
        self, context: "StepContext", task: "Task", gate: int, report: int, stepd_fds: "Sequence[int]",
        hard_limits: "rlimits.Changes",
    ) -> None:  # fmt: skip
        """In the stepd, before the first fork: what is made here costs no pages in the tasks."""
        self.context = context
        self.step = context.step
        self.task = task
        self.gate = gate
        self.placement = Placement() if must_wait(context.node) else None
        self.report = report
        self.stepd_fds = stepd_fds  # what the task closes first
        self.hard_limits = hard_limits
        self.stepd = 0
        self.cgroup: str | None = None  # which the task enters by itself, where it was not born in it
        self.confinement = Confinement(context.step, task.environment)
        self.slot = task.local_id + 1
        self.recorder = Recorder(context.trace, "task", task=task.local_id)
        # Threads that a hook leaves do no harm: exec ends them.
        progress, limit = context.progress, context.step.hook_timeout
        heirs = progress.inheritance(self.slot)
        self.caller = PluginCaller(self.recorder, progress, self.slot, limit, single_threaded=False, heirs=heirs)

    def begin_row(self, call: str) -> int:
        """The task begins a row of the launch order that is nodectl's own. Returns the time, for `end_row`."""
        self.context.progress.enter(self.slot, ROWS[call])
        return now()

    def end_row(self, call: str, started: int, rc: int = 0, note: str = "") -> None:
        """The row is over: writes it to the trace."""
        self.recorder.write(ROWS[call], started, rc=rc, note=note)

    def require(self, outcome: "Outcome") -> None:
        """Raises TaskEnds for a call that failed."""
        if not outcome:
            raise TaskEnds(outcome.why)

    def say(self, line: str) -> None:
        """A line for the step's user."""
        self.tell("say", line)

    def log(self, line: str) -> None:
        """A line for the log."""
        self.tell("log", line)

    def tell(self, key: str, text: str) -> None:
        """A report to the stepd: `key` is "say", "log" or "failed"."""
        data = framing.encode({"task": self.task.local_id, key: text[: _LONGEST_REPORT // 6]})
        try:
            os.write(self.report, data)
        except OSError:
            pass  # the stepd has died, and nobody else reads the pipe
