"""Decisions of the queue, carried out by the queue's caller. Values only, in the daemon and in planning commands."""

from __future__ import annotations

from nodectl.model.value_class import dataclass
from nodectl.selection.records import JobRecord

SUSPEND, REQUEUE, CANCEL = "suspend", "requeue", "cancel"
"""How a job is preempted."""


class NotAdmitted(Exception):
    """The refusal of a job or of a change, as a line for the user.

    `subject`: a name in `nodectl/client/advice.py`, or "".
    """

    def __init__(self, reason: str, subject: str = "") -> None:
        super().__init__(reason)
        self.subject = subject


@dataclass(frozen=True, slots=True)
class Start:
    """The decision to start a job. The job is RUNNING and holds resources: begin the job, or call `begin_failed`.

    `array`: the record of the waiting array from which this task was split off with a new job id; the record has
    changed.
    """

    job: JobRecord
    array: JobRecord | None = None


@dataclass(frozen=True, slots=True)
class Preempt:
    """The decision to make a running job give way to `for_job`: suspend, requeue or cancel the job, as `how` says.

    Report the result with the scheduler's method `suspend`, `requeue` or `ended`, or with `stays` where the job cannot
    be suspended.
    """

    job: JobRecord
    how: str
    for_job: JobRecord


@dataclass(frozen=True, slots=True)
class Resume:
    """The decision to continue a suspended job, now RUNNING with its CPUs: let the processes go on."""

    job: JobRecord


@dataclass(frozen=True, slots=True)
class End:
    """The decision to end a waiting job without any chance to start, now unknown to the queue: record the end."""

    job: JobRecord
    state: str
    reason: str


Decision = Start | Preempt | Resume | End
