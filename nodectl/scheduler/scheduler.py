"""The queue as a whole: all jobs, and the decision which job starts when.

Runs in the daemon's event loop, and in planning commands. It reads no clock and does no work at rest: each call gets
the time, and `next_time` returns when to look again. It decides; its caller carries out, and reports the result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import count

from nodectl.model import reasons, states
from nodectl.scheduler import changes, expansion, job_array
from nodectl.scheduler.arrays import is_waiting_array
from nodectl.scheduler.backfill import Backfill, unplace
from nodectl.scheduler.book import Book
from nodectl.scheduler.decisions import Decision, NotAdmitted
from nodectl.scheduler.explain import Explainer, Explanation, Survey
from nodectl.scheduler.happened import Outcome
from nodectl.scheduler.limits import Block, asked
from nodectl.scheduler.policy import Policy
from nodectl.scheduler.priority import Points
from nodectl.scheduler.reservation import Reservations
from nodectl.scheduler.room import Room
from nodectl.scheduler.sweep import Sweeps
from nodectl.selection.host import Selection
from nodectl.selection.records import JobRecord, ReservationRequest

_CLOCK_STEP = 1.0  # seconds that the clock may go back without harm


class Scheduler:
    """The queue.

    `usage`: rows of user, CPU seconds used, and when that was so, as the method `usage` returned them; `week` as
    `week_rows` did. `new_id` returns
    the number of a job that is split off an array, or raises NotAdmitted. `outcome` returns how a job, or a task of an
    array, ended that is not among `jobs`.
    """

    def __init__(
        self,
        selection: Selection,
        policy: Policy,
        *,
        usage: Iterable[Sequence[float]] = (),
        week: Iterable[tuple[str, float, float, float]] = (),
        reservations: Iterable[ReservationRequest] = (),
        new_id: Callable[[], int] | None = None,
        outcome: Callable[[int, int | None], Outcome | None] = lambda job_id, task: None,
    ) -> None:
        self.selection = selection
        self.policy = policy
        self._numbers = count(1)
        self._book = Book(selection, policy, usage, new_id or self._next_number, outcome, week)
        self.jobs = self._book.jobs
        self._reservations = Reservations(selection, reservations)
        self.reservations: Mapping[str, ReservationRequest] = self._reservations.by_name
        self._room = Room(self._book, self._reservations)
        self._backfill = Backfill(self._book, self._room, self._reservations)
        self._sweeps = Sweeps(self._book, self._room, self._backfill, self._reservations)
        self._explainer = Explainer(self._book, self._room, self._backfill, self._reservations)
        self._latest = 0.0  # when the queue was looked at last

    def restore(self, jobs: Iterable[JobRecord], now: float) -> None:
        """Take over the jobs of an earlier daemon. Active jobs hold the `job_resrcs` told to the selection."""
        for _ in self.restoring(jobs, now):
            """All of it at once."""

    def restoring(self, jobs: Iterable[JobRecord], now: float) -> Generator[None, None, None]:
        """Do the work of `restore` in pieces.

        The caller may leave the generator at any yield, but must not use the queue before the generator has ended.
        """
        return self._book.restoring(jobs, now)

    def learning(self, dependency: str) -> Generator[None, None, None]:
        """Ask the history about the jobs of a dependency in advance, for a later `submit` without questions.

        The caller may leave the generator at any yield.
        """
        return self._book.waits.learning(dependency)

    def submit(self, job: JobRecord, now: float) -> None:
        """Add a new waiting job. Raises NotAdmitted."""
        self._look_at_clock(now)
        changes.prepare(job, self.policy, now)
        if job.array_tasks:
            self._book.arrays.admit(job, self.policy.max_array_size)
        self._reservations.admit(job)
        self._book.accounts.admit(job)
        self._book.week.admit(job, asked(job), "asks for")
        self.selection.info.admit(job)
        try:
            changes.possible(job, self._book, now)
            expansion.admit(self._book, job, job.details.dependency)
            self._book.waits.want(job, job.details.dependency)
        except NotAdmitted:
            self.selection.info.free(job)
            raise
        self._book.add(job)
        self._book.place(job, now)

    def try_start(self, job: JobRecord, now: float) -> str:
        """Start a new job at once, without delaying any job in line.

        Return "" where the job is RUNNING; otherwise forget the job and return Slurm's word for the reason. Raises
        NotAdmitted for a job that `submit` would not take either.
        """
        book = self._book
        changes.prepare(job, self.policy, now)
        details = job.details
        if details.dependency or details.begin_time > now or job.held or job.array_tasks:
            otherwise = reasons.HELD_BY_USER if job.held else reasons.BEGIN_TIME
            return reasons.DEPENDENCY if details.dependency else otherwise
        if details.reservation:
            self._reservations.admit(job)
        if job.user_id:
            book.accounts.admit(job)
            book.week.admit(job, asked(job), "asks for")
        if book.unlooked or (len(book.line) and (book.freed or book.fresh)):
            return reasons.PRIORITY
        self.selection.info.admit(job, is_kept=False)
        found = self._backfill.start(job, now, is_new=True)
        if isinstance(found, Block):
            self.selection.info.free(job)
            return found.reason
        return ""

    def schedule(self, now: float) -> Iterator[Decision | None]:
        """Yield decisions about everything possible now.

        The caller may leave the generator at any yield; None marks a good moment for the caller's other work.
        """
        self._look_at_clock(now)
        return self._sweeps.run(now)

    def clock_set(self, by: float, now: float) -> None:
        """Correct all times, because the clock was set by `by` seconds and shows `now`."""
        self._book.clock_set(now, by)
        self._sweeps.more_at = 0.0
        self._latest = now

    def begin_failed(self, job: JobRecord, reason: str, now: float) -> None:
        """Let a job wait again, each time longer, because the start failed and nothing of the job runs."""
        self._end_active(job, now)
        self._book.pauses.fail(job.job_id, reason, now)
        self._wait_again(job, now)

    def ending(self, job: JobRecord, now: float) -> None:
        """Note the beginning of an active job's termination. Call `ending` before any process is signalled."""
        if job.job_state in (states.RUNNING, states.SUSPENDED):
            self._book.ending(job, now)

    def ended(self, job: JobRecord, state: str, exit_code: int, now: float) -> None:
        """Note the end of a job, active or waiting: nothing of the job runs, nothing cleans up after the job."""
        if self.jobs.get(job.job_id) is not job:
            return
        self._end_active(job, now)
        job.job_state, job.exit_code, job.end_time = state, exit_code, now
        job.state_reason, job.state_desc = reasons.end_reason(state, exit_code), ""
        self._room.forget(job)
        self._book.over(job, state, now)

    def requeue(self, job: JobRecord, now: float) -> None:
        """Let an active job wait again, of which nothing runs any more. Raises NotAdmitted for a job not active."""
        if not job.is_active:
            raise NotAdmitted(f"job {job.job_id} is not running")
        self._end_active(job, now)
        self._wait_again(job, now)

    def cancel(self, job: JobRecord, now: float, tasks: str = "") -> bool:
        """Cancel a waiting job, or the given waiting tasks of an array. Return True when nothing is left of the job.

        Raises NotAdmitted for invalid indices.
        """
        if tasks and is_waiting_array(job):
            try:
                gone = job_array.tasks_of(tasks)
                nothing_left = self._book.arrays.drop(job, gone)
            except ValueError as error:
                raise NotAdmitted(f"Invalid job array specification: {error}") from None
            if not nothing_left:
                self._book.tasks_cancelled(job, gone)
                return False
        self.ended(job, states.CANCELLED, 0, now)
        return True

    def set_apart(self, job: JobRecord, index: int, now: float) -> JobRecord:
        """Make task `index` of a waiting array a separate job, to be held or changed alone.

        Raises NotAdmitted where its user has too many jobs for that, or where there is no number for it.
        """
        self._book.accounts.admit(job)
        self._book.waits.admit_another(job)
        task = self._book.set_apart(job, index)
        for one in (task, job):
            self._replace(one, now)
        return task

    def hold(self, job: JobRecord, who: str, now: float) -> None:
        """Hold a waiting job until the release. `who`: "user" or "admin". Raises NotAdmitted for a job not waiting."""
        self._must_wait(job)
        if job.held != "admin":
            job.held = who
        self._replace(job, now)

    def release(self, job: JobRecord, now: float, *, is_admin: bool = False) -> None:
        """Release a held job. Raises NotAdmitted where a user releases a job held by an administrator."""
        self._must_wait(job)
        if job.held == "admin" and not is_admin:
            raise NotAdmitted(f"Access denied: an administrator holds job {job.job_id}")
        job.held = ""
        self._book.pauses.forget(job.job_id)
        self._replace(job, now)

    def update(self, job: JobRecord, changed: Mapping[str, object], now: float, *, is_admin: bool = False) -> None:
        """Change a job's request, all or nothing. Raises NotAdmitted.

        `changed` may hold time_limit, name and comment, and while the job waits also priority, nice, begin, deadline,
        dependency, ntasks, cpus_per_task, mem, qos and reservation.
        """
        changes.Update(self._book, self._reservations, job, changed, is_admin=is_admin).make(now)
        if job.job_state == states.PENDING:
            self._replace(job, now)
        else:
            self._book.freed = True

    def target_of(self, source: JobRecord) -> JobRecord:
        """Return the job to be expanded by `source`. Raises NotAdmitted."""
        return expansion.target_of(self._book, source)

    def expand(self, source: JobRecord, now: float) -> None:
        """Move all resources of a running job to the job to be expanded. Raises NotAdmitted.

        The termination of `source` has to begin at once: call `ending`.
        """
        expansion.merge(self._book, source, now)

    def suspend(self, job: JobRecord, now: float, *, by_owner: bool = False) -> str:
        """Suspend a running job: the CPUs become free, memory and devices stay. Return "" or the reason against it."""
        if job.job_state == states.SUSPENDED:
            self._book.resuming.pop(job.job_id, None)
            return ""
        if job.job_state != states.RUNNING:
            return f"job {job.job_id} is {job.job_state.lower()}"
        for giver in self._book.givers(job):
            return f"job {giver.job_id}, which gave it CPUs, still uses them"
        why = self.selection.job_suspend(job, True)
        if not why:
            self._book.suspended(job, now, by_owner=by_owner)
        return why

    def stays(self, job: JobRecord, now: float) -> None:
        """Note the failure to suspend a preempted job: other jobs are asked to make room, and this job again later."""
        if job.job_state == states.RUNNING and job.preempted_by:
            self._book.stays(job, now)

    def resume(self, job: JobRecord, now: float) -> str:
        """Resume a suspended job. Return "" when the job has the CPUs again, else the reason.

        `schedule` decides Resume when they are free.
        """
        if job.job_state != states.SUSPENDED:
            return f"job {job.job_id} is {job.job_state.lower()}, not suspended"
        why = self.selection.job_resume(job, True)
        if why:
            self._book.resuming[job.job_id] = job
            job.state_reason, job.state_desc = reasons.RESOURCES, why
            return why
        self._book.resumed(job, now)
        return ""

    def changed(self) -> None:
        """Note a change of nodes (drained, resumed, another configuration); the whole line is looked at anew."""
        self._book.freed = True

    def next_time(self, now: float) -> float | None:
        """Return when time alone may change something: call `schedule` then. Now, if something has changed already."""
        book = self._book
        if book.fresh or book.unlooked or book.hopeless or (book.freed and (len(book.line) or book.stopped)):
            return now
        times = [book.agenda.next_time(), self._sweeps.more_at or None]
        times.append(self._reservations.next_time(now) if self._reservations.by_name else None)
        return min((at for at in times if at is not None), default=None)

    def line(self, now: float) -> list[JobRecord]:
        """Return the waiting jobs in order, with `priority` set in each."""
        return self._explainer.line(now)

    def in_order(self, now: float) -> Iterator[JobRecord]:
        """Yield the jobs ready to start as soon as there is room, in order. A caller pays only for the jobs read."""
        return self._book.line.in_order(now)

    def points(self, jobs: Sequence[JobRecord], now: float) -> list[Points]:
        """Return the parts of each job's priority."""
        return self._book.line.parts(jobs, now)

    def goes_before(self, job: JobRecord, other: JobRecord, now: float) -> bool:
        """True where `job` stands before the second job, whether or not both still wait."""
        return self._book.line.goes_before(job, other, now)

    def explain(self, job: JobRecord, now: float) -> Explanation:
        """Explain why a job waits at this moment."""
        return self._explainer.explain(job, now)

    def explaining(self, job: JobRecord, now: float) -> Generator[None, None, Explanation]:
        """Do the work of `explain` in pieces. The caller may leave at any yield, even to change the queue."""
        return self._explainer.explaining(job, now)

    def briefs(self, jobs: Iterable[JobRecord], now: float) -> list[Explanation]:
        """Explain each job without `for_whom` and `what_would_help`, which costs little for many jobs together."""
        return self._explainer.briefs(jobs, now)

    def survey(self, now: float) -> Generator[None, None, Survey]:
        """Survey all waiting jobs for `brief`. The caller may leave at any yield, even to change the queue."""
        return self._explainer.survey(now)

    def brief(self, job: JobRecord, now: float, survey: Survey) -> Explanation:
        """Explain a job as `briefs` does, from a survey."""
        return self._explainer.brief(job, now, survey.starts)

    def waiting_tasks(self, job: JobRecord) -> job_array.Tasks:
        """Return the waiting tasks of an array record."""
        return self._book.arrays.tasks(job)

    def expected_start(self, job: JobRecord, now: float) -> float | None:
        """Return the expected start by present knowledge, if no job comes before; None where unknown."""
        return self._explainer.expected_start(job, now)

    def usage(self, now: float) -> list[tuple[int, float, float]]:
        """Return the recent use of each user, to be stored and given to the next Scheduler."""
        return self._book.fair_share.rows(now)

    def week_rows(self, now: float) -> list[tuple[str, float, float, float]]:
        """Return the hours of this week of each user with limits, in seconds, to be stored and given back."""
        return self._book.week.rows(now)

    def week_hours(self, now: float) -> list[dict[str, object]]:
        """Return the hours of this week of all users with limits."""
        return self._book.week.hours(now)

    def reserve(self, request: ReservationRequest, now: float) -> ReservationRequest:
        """Reserve cores for users. Raises NotAdmitted."""
        self._reservations.make(request, self._book.active.values(), now)
        self._book.freed = True
        return request

    def delete_reservation(self, name: str) -> None:
        """Delete a reservation. Raises KeyError."""
        self._reservations.delete(name)
        self._book.freed = True

    def _look_at_clock(self, now: float) -> None:
        if now < self._latest - _CLOCK_STEP:
            self._book.clock_set_back(now, self._latest - now)
            self._sweeps.more_at = 0.0
        self._latest = now

    def _end_active(self, job: JobRecord, now: float) -> None:
        self.ending(job, now)
        if job.job_state == states.COMPLETING:
            self._book.vacated(job, now)

    def _wait_again(self, job: JobRecord, now: float) -> None:
        unplace(job)
        job.restart_cnt += 1
        job.start_time = job.end_time = job.suspend_time = 0.0
        job.preempted_by = job.exit_code = 0
        job.joining = ()
        self._book.place(job, now)

    def _must_wait(self, job: JobRecord) -> None:
        if job.job_state != states.PENDING or self.jobs.get(job.job_id) is not job:
            raise NotAdmitted(f"Job {job.job_id} is no longer pending execution")

    def _replace(self, job: JobRecord, now: float) -> None:
        self._room.forget(job)
        self._book.place(job, now)

    def _next_number(self) -> int:
        return next(number for number in self._numbers if number not in self.jobs)
