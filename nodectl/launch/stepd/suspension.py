"""Suspend and resume: SIGTSTP, so a program can prepare, some seconds later the freezer.

Time suspended by an admin does not count for the step's time limit. Time suspended by the owner counts: a suspended
step keeps memory and devices, and owners do not decide how long they keep them.

Runs in the stepd, which is not suspended itself and goes on answering. A step that is to end is resumed first, so that
its tasks get the signal. SIGKILL also ends frozen processes.
"""

import time

from nodectl.kernel.signals import CONT, STOP
from nodectl.model import launch_order
from nodectl.model.states import RUNNING
from nodectl.model.wire.dispatch import STEP, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.launch.stepd.run import Run

FREEZE, TIME_LIMIT = "freeze", "time limit"


class Suspension:
    """The suspension of a step. `deadlines` are the deadlines of `Termination`, by name; this class sets `FREEZE`."""

    __slots__ = ("_began", "_deadlines", "_left", "_run", "by_owner", "suspended")

    def __init__(self, run: "Run", deadlines: "dict[str, float]") -> None:
        self._run = run
        self._deadlines = deadlines
        self._began = 0.0
        self._left: float | None = None  # seconds left of the time limit, while it stands still
        self.suspended = self.by_owner = False

    def begin(self, *, by_owner: bool = False) -> None:
        """Begin the suspension. The caller sends SIGTSTP; `freeze` is due after suspend_grace_time. Raises Refused."""
        self._must_run()
        if self.suspended:
            raise Refused(f"{STEP}.WrongState", f"step {self._run.step} is suspended already")
        now = time.monotonic()
        self.suspended = True
        self.by_owner = by_owner
        self._began = now
        limit = None if by_owner else self._deadlines.pop(TIME_LIMIT, None)
        self._left = None if limit is None else limit - now
        self._deadlines[FREEZE] = now + self._run.step.suspend_grace_time

    def freeze(self) -> None:
        """Stop every process of the step: by the freezer of the step's cgroup, or by SIGSTOP without a cgroup."""
        self._signal(STOP)

    def end(self) -> None:
        """Resume the step. SIGCONT comes before the thaw, so tasks see the signal first. Raises Refused."""
        if not self.suspended:
            raise Refused(f"{STEP}.WrongState", f"step {self._run.step} is not suspended")
        self._deadlines.pop(FREEZE, None)
        self._signal(CONT)
        self.suspended = False
        now = time.monotonic()
        self._run.suspended_seconds += now - self._began
        if not self.by_owner:
            self._run.uncounted_seconds += now - self._began
        if self._left is not None:
            self._deadlines[TIME_LIMIT] = now + self._left

    def limit(self, began: float, seconds: int) -> None:
        """Set the time limit of the step, which began at `began`, to `seconds`; 0 for none."""
        at = began + self._run.uncounted_seconds + seconds
        if self.suspended and not self.by_owner:
            self._left = at - self._began if seconds else None
        elif seconds:
            self._deadlines[TIME_LIMIT] = at
        else:
            self._deadlines.pop(TIME_LIMIT, None)

    def refuse_if_suspended(self) -> None:
        """Raise Refused if the step is suspended."""
        if self.suspended:
            reason = f"step {self._run.step} is suspended; resume it, or end it with KILL"
            raise Refused(f"{STEP}.WrongState", reason)

    def _must_run(self) -> None:
        if self._run.state != RUNNING or not self._run.step.container_id:
            raise Refused(f"{STEP}.WrongState", f"step {self._run.step} is not running")

    def _signal(self, number: int) -> None:
        run = self._run
        run.call(launch_order.PROCTRACK_SIGNAL, run.step.container_id, number)
