"""What the queue decides, and its caller then carries out. Values only, in the daemon and in commands that plan."""

from __future__ import annotations

from nodectl.model.value_class import dataclass
from nodectl.selection.records import JobRecord

SUSPEND, REQUEUE, CANCEL = "suspend", "requeue", "cancel"
"""How a job is preempted."""


class NotAdmitted(Exception):
    """A job or a change that is refused: one line, for its user. `subject`: one of `nodectl/client/advice.py`, or
    "".
    """

    def __init__(self, reason: str, subject: str = "") -> None:
        super().__init__(reason)
        self.subject = subject


@dataclass(frozen=True, slots=True)
class Start:
    """The job is RUNNING and holds its resources: begin it, or tell `begin_failed`.

    `array`: the record of the waiting array from which this task was split off with a new job id; it has changed.
    """

    job: JobRecord
    array: JobRecord | None = None


@dataclass(frozen=True, slots=True)
class Preempt:
    """A running job makes room: suspend, requeue or cancel it, and tell by the function of that name, by `ended`, or by
    `stays` where it cannot be suspended.
    """

    job: JobRecord
    how: str
    for_job: JobRecord


@dataclass(frozen=True, slots=True)
class Resume:
    """The CPUs of a suspended job are free: it is RUNNING and holds them again; let its processes go on."""

    job: JobRecord


@dataclass(frozen=True, slots=True)
class End:
    """A job that waits can never start: the queue has forgotten it, write down its end."""

    job: JobRecord
    state: str
    reason: str


Decision = Start | Preempt | Resume | End
