"""The queue as one object: which jobs there are, and which of them starts when.

Runs in the daemon's event loop, and in commands that plan. It reads no clock and does no work at rest: each call says
what time it is, and `next_time` when to look again. It decides; its caller carries out, and tells what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nodectl.scheduler.decisions import Decision, NotAdmitted, Start
from nodectl.scheduler.explanation import Explanation
from nodectl.scheduler.policy import Policy
from nodectl.scheduler.selecting import Selecting
from nodectl.selection.answers import Choice
from nodectl.selection.modes import COMPLETING, PENDING, RUNNING, SELECT_MODE_RUN_NOW, SELECT_MODE_TEST_ONLY, SUSPENDED
from nodectl.selection.records import JobRecord, ReservationRequest

Outcome = tuple[str, int]
"""State and exit code of a job that has ended."""


class Scheduler:
    """`usage`: rows of user, CPU seconds used, and when that was so, as `usage` gave them. `new_id` makes the number of
    a job that is split off an array. `outcome` tells how a job, or a task of an array, ended that is not among `jobs`.
    """

    def __init__(
        self,
        selection: Selecting,
        policy: Policy,
        *,
        usage: Iterable[Sequence[float]] = (),
        reservations: Iterable[ReservationRequest] = (),
        new_id: Callable[[], int] | None = None,
        outcome: Callable[[int, int | None], Outcome | None] = lambda job_id, task: None,
    ) -> None:
        self.selection = selection
        self.policy = policy
        self.jobs: dict[int, JobRecord] = {}
        self.reservations: dict[str, ReservationRequest] = {one.name: one for one in reservations}
        self._outcome = outcome
        self._new_id = new_id

    def restore(self, jobs: Iterable[JobRecord], now: float) -> None:
        """Take over what an earlier daemon left. Active jobs hold their `job_resrcs`, as the selection was told."""
        self.jobs.update((job.job_id, job) for job in jobs)

    def submit(self, job: JobRecord, now: float) -> None:
        """A new job waits. Raises NotAdmitted."""
        choice = self.selection.job_test(job, SELECT_MODE_TEST_ONLY, now=now)
        if not isinstance(choice, Choice):
            raise NotAdmitted(choice.reason)
        self.jobs[job.job_id] = job

    def try_start(self, job: JobRecord, now: float) -> str:
        """Start a new job at once: "", and it is RUNNING; or why not, and it is forgotten. Delays nobody in line."""
        if any(one.job_state == PENDING for one in self.jobs.values()):
            return "Priority"
        reason = self._start(job, now)
        if not reason:
            self.jobs[job.job_id] = job
        return reason

    def schedule(self, now: float) -> Iterator[Decision | None]:
        """What can start now. May be left at any yield; None is a good moment for the caller's other work."""
        for job in self.line(now):
            if self._start(job, now):
                return
            yield Start(job)

    def begin_failed(self, job: JobRecord, reason: str, now: float) -> None:
        """A job that was to start did not: it waits again, each time longer."""
        self.requeue(job, now)

    def ending(self, job: JobRecord, now: float) -> None:
        """The termination of an active job begins. Call it before any process is signalled."""
        if job.job_state in (RUNNING, SUSPENDED):
            job.job_state = COMPLETING
            self.selection.job_fini(job)

    def ended(self, job: JobRecord, state: str, exit_code: int, now: float) -> None:
        """A job is over: nothing of it runs, nothing cleans up after it. Also for one that waited."""
        self.ending(job, now)
        if job.is_active:
            self.selection.released(job)
        job.job_state, job.exit_code, job.end_time = state, exit_code, now
        self.jobs.pop(job.job_id, None)

    def requeue(self, job: JobRecord, now: float) -> None:
        """An active job, of which nothing runs any more, waits again."""
        self.ending(job, now)
        self.selection.released(job)
        job.job_state, job.restart_cnt = PENDING, job.restart_cnt + 1
        job.job_resrcs = job.node_bitmap = None

    def cancel(self, job: JobRecord, now: float, tasks: str = "") -> bool:
        """Forget a job that waits, or these of the waiting tasks of an array. True when nothing is left of it."""
        self.ended(job, "CANCELLED", 0, now)
        return True

    def hold(self, job: JobRecord, who: str, now: float) -> None:
        """`who`: "user" or "admin". The job waits until it is released."""
        job.held = who

    def release(self, job: JobRecord, now: float, *, is_admin: bool = False) -> None:
        """Raises NotAdmitted for what an administrator holds and somebody else releases."""
        job.held = ""

    def update(self, job: JobRecord, changes: Mapping[str, object], now: float, *, is_admin: bool = False) -> None:
        """Change what a job asks for: time_limit, priority, nice, begin, deadline, dependency, and while it waits
        ntasks, cpus_per_task, mem, qos, reservation, name, comment. All or nothing. Raises NotAdmitted.
        """

    def suspend(self, job: JobRecord, now: float) -> str:
        """A running job gives its CPUs to others, and keeps memory and devices. "" or why not."""
        return self.selection.job_suspend(job, True)

    def resume(self, job: JobRecord, now: float) -> str:
        """ "" when it has its CPUs again; else why not: `schedule` decides Resume when they are free."""
        return self.selection.job_resume(job, True)

    def next_time(self, now: float) -> float | None:
        """When time alone may change something: call `schedule` then."""
        return None

    def line(self, now: float) -> list[JobRecord]:
        """The jobs that wait, in order; `priority` is set in each."""
        return [job for job in self.jobs.values() if job.job_state == PENDING]

    def explain(self, job: JobRecord, now: float) -> Explanation:
        """Why a job waits, at this moment."""
        return Explanation(job.state_reason, job.state_desc)

    def expected_start(self, job: JobRecord, now: float) -> float | None:
        """When it would start by what is known now."""
        return None

    def usage(self, now: float) -> list[tuple[int, float, float]]:
        """What each user used of late, for the store: given to the next Scheduler."""
        return []

    def reserve(self, request: ReservationRequest, now: float) -> ReservationRequest:
        """Keep cores for users. Raises NotAdmitted."""
        self.reservations[request.name] = request
        return request

    def delete_reservation(self, name: str, now: float) -> None:
        """Raises KeyError."""
        del self.reservations[name]

    def _start(self, job: JobRecord, now: float) -> str:
        choice = self.selection.job_test(job, SELECT_MODE_RUN_NOW, now=now)
        if not isinstance(choice, Choice):
            return choice.reason
        failed = self.selection.job_begin(job)
        if not failed:
            job.job_state, job.start_time = RUNNING, now
        return failed
