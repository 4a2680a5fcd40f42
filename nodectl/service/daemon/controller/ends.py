"""How jobs end: by themselves, cancelled, preempted, or requeued.

The end of a running job has two moments. When its termination begins, the select plugin is told, before any process is
signalled. When nothing of the job is left, its resources are free. Between the two, a Doom holds the state that the job
will get.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nodectl.model.wire.dispatch import Refused
from nodectl.model.wire.names import QUEUED_AGAIN
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.selection.modes import COMPLETING, ENDED, PENDING
from nodectl.selection.records import BATCH, JobRecord
from nodectl.service.daemon.controller.core import Core
from nodectl.service.daemon.controller.drain import Drain
from nodectl.service.daemon.controller.job_request import ADMIN
from nodectl.service.daemon.controller.steps_told import StepsTold
from nodectl.service.daemon.history.job_store import REQUEUED
from nodectl.service.daemon.steps.live import LiveStep

COMPLETED = "COMPLETED"


def given_to(job: JobRecord) -> str:
    """Return the end reason of a job that has given its resources to another job."""
    return f"job {job.given_to} was given what it held"


class Doom(NamedTuple):
    """The final state of a job, decided before the job is over; `hold`: the holder of a job to be requeued."""

    state: str
    reason: str
    hold: str = ""


class Ends:
    """The ends of the node's jobs.

    `starting`: the jobs whose first step is being made. `given_is_free` is called when a job is over that has given its
    resources to another job, `run_is_over` at the end of each run.
    """

    given_is_free: Callable[[JobRecord], None]
    run_is_over: Callable[[int], None]

    def __init__(self, core: Core, drain: Drain, steps: StepsTold) -> None:
        self._core = core
        self._table = core.table
        self._drain = drain
        self._steps = steps
        self._dooms: dict[int, Doom] = {}
        self.starting: set[int] = set()

    # Ends that a user, an admin or the scheduler asks for.

    def cancel(self, job: JobRecord, tasks: str, state: str, reason: str) -> None:
        """End a job, or the named waiting tasks of an array."""
        if job.job_state == PENDING:
            self._cancel_waiting(job, tasks, reason)
        else:
            self._doom(job, Doom(state, reason))

    def _cancel_waiting(self, job: JobRecord, tasks: str, reason: str) -> None:
        try:
            gone = self._core.scheduler.cancel(job, time.time(), tasks)
        except NotAdmitted as error:
            raise Refused("InvalidRequest", str(error), parameter="jobs") from None
        job.state_desc = reason if gone else ""
        if gone:
            self._core.leases.end(job.job_id)
            self._table.ended(job)
        else:
            self._table.changed(job)
        self._table.commits.soon()
        self._core.rounds.kick()

    def requeue(self, job: JobRecord, reason: str, hold: str = "") -> None:
        """End the running steps of a batch job, which then waits again. A later daemon knows this too."""
        if job.job_id not in self._dooms:
            job.to_requeue = hold
            self._table.changed(job)
            self._table.commits.soon()
        self._doom(job, Doom(REQUEUED, reason, hold))

    def never(self, job: JobRecord, state: str, reason: str) -> None:
        """End a waiting job without any chance to start."""
        job.job_state, job.state_desc, job.end_time = state, reason, time.time()
        self._core.leases.end(job.job_id)
        self._table.ended(job)

    def _doom(self, job: JobRecord, doom: Doom) -> None:
        earlier = self._dooms.get(job.job_id)
        if earlier is not None:
            if earlier.state == REQUEUED:
                job.to_requeue = None
                self._table.changed(job)
                self._dooms[job.job_id] = doom  # it does not run again
            return
        self._dooms[job.job_id] = doom
        self.begins(job)
        if job.job_id in self.starting:
            return  # `Controller._begin_batch` looks for the doom after the start
        if not self._end_steps(job, doom):
            self._without_steps(job)

    def catch_up(self, job: JobRecord) -> None:
        """End the steps of a job if an end was requested while the first step was being started."""
        doom = self._dooms.get(job.job_id)
        if doom is not None:
            self._end_steps(job, doom)

    def has_not_begun(self, job: JobRecord) -> bool:
        """Handle a failed start: if an end of the job was requested meanwhile, end or requeue it and return True."""
        doom = self._dooms.pop(job.job_id, None)
        if doom is None:
            return False
        if doom.state == REQUEUED:
            self._wait_again(job, doom)
            job.restart_cnt -= 1  # the run that never was does not count
            self._settled(job)
        else:
            job.state_desc = doom.reason
            self.over(job, doom.state, 1)
        return True

    def is_doomed(self, job_id: int) -> bool:
        """Return True for a job with an end requested before the start."""
        return job_id in self._dooms

    def _end_steps(self, job: JobRecord, doom: Doom) -> bool:
        """End the job's steps. Return False where the job has no steps and nothing is left to wait for."""
        registry = self._core.parts.registry
        steps = registry.steps_of(job.job_id)
        state = "CANCELLED" if doom.state == REQUEUED else doom.state
        for live in steps:
            if live.in_prolog:
                live.cancelled = f"step {live.step} was ended in its prolog: {doom.reason}"
            else:
                self._core.tasks.begin(_end(live, state, doom.reason))
        return bool(steps) or registry.first(job.job_id) is not None

    def _without_steps(self, job: JobRecord) -> None:
        """End a job with granted resources whose client has launched nothing."""
        doom = self._dooms.pop(job.job_id)
        job.state_desc = doom.reason
        self.over(job, doom.state if doom.state in ENDED else "CANCELLED", 1)

    # Ends that happen.

    def begins(self, job: JobRecord) -> None:
        """Begin the termination of a job: tell the scheduler and the select plugin."""
        if job.job_state not in (PENDING, COMPLETING):
            self._core.scheduler.ending(job, time.time())
            self._steps.killed(job.job_id)
            self._table.changed(job)

    def has_ended(self, job: JobRecord, record: Mapping[str, Any]) -> None:
        """Finish a job after all processes and the epilog have ended; `record` is the record of the first step."""
        doom = self._dooms.pop(job.job_id, None)
        if doom is None and job.to_requeue is not None:
            doom = Doom(REQUEUED, QUEUED_AGAIN, job.to_requeue)  # an earlier daemon was asked to requeue it
        if job.given_to:
            doom = Doom(COMPLETED, given_to(job))
            record = {**record, "exit_status": 0}  # its user wanted that end
        if record.get("prolog") or record.get("epilog"):
            self._drain.failed(record)
        if job.held_by == BATCH:
            self._core.parts.spool.remove(job.job_id)
        if record.get("prolog") and job.held_by == BATCH and doom is None:
            doom = Doom(REQUEUED, str(record["prolog"]), ADMIN)
        died = bool(record.get("never_began"))
        if (died or record.get("interrupted")) and job.held_by == BATCH and doom is None:
            doom = Doom(REQUEUED, str(record.get("reason")))
        if doom is not None and doom.state == REQUEUED and job.held_by == BATCH:
            self._again(job, doom, died=died)
            return
        state = str(record.get("state", "FAILED")) if doom is None else doom.state
        job.state_desc = str(record.get("reason") or "") if doom is None else doom.reason
        if record.get("prolog") and doom is None:
            state = "CANCELLED"
        self.over(job, state if state in ENDED else "FAILED", int(record.get("exit_status", 1)))

    def _again(self, job: JobRecord, doom: Doom, *, died: bool) -> None:
        """Put the job into the queue again. `died`: the job died before the script began.

        The cause of the death may recur, so the job waits longer each time.
        """
        job.end_time, job.to_requeue = time.time(), None
        self._table.store.put_run(job)
        self._wait_again(job, doom, died=died)
        self._settled(job)

    def _wait_again(self, job: JobRecord, doom: Doom, *, died: bool = False) -> None:
        now, scheduler = time.time(), self._core.scheduler
        self.run_is_over(job.job_id)
        job.to_requeue = None
        if died:
            scheduler.begin_failed(job, doom.reason, now)
        else:
            scheduler.requeue(job, now)
            job.state_desc = doom.reason
        if doom.hold:
            scheduler.hold(job, doom.hold, now)

    def over(self, job: JobRecord, state: str, exit_code: int) -> None:
        """End the job for good."""
        self._core.leases.end(job.job_id)
        self.run_is_over(job.job_id)
        words = job.state_desc
        self._core.scheduler.ended(job, state, exit_code, time.time())
        job.state_desc = words
        self._table.ended(job)
        if job.given_to:
            self.given_is_free(job)
        self._after_end()

    def _settled(self, job: JobRecord) -> None:
        self._table.changed(job)
        self._table.commits.soon()
        self._after_end()

    def _after_end(self) -> None:
        self._core.usage_changed()
        # Not only waiting jobs need a round: a job that was suspended to make room goes on now.
        if self._core.scheduler.next_time(time.time()) is not None:
            self._core.rounds.kick()


async def _end(live: LiveStep, state: str, reason: str) -> None:
    with contextlib.suppress(Refused):  # it has just ended
        await live.order("End", {"state": state, "reason": reason})
