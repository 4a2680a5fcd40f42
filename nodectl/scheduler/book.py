"""The unfinished jobs and all counts of the queue: the only place where a job's state changes.

In the daemon's event loop and in planning commands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from nodectl.model import reasons, states
from nodectl.model.value_class import dataclass
from nodectl.model.words import duration
from nodectl.scheduler import job_array
from nodectl.scheduler.agenda import Agenda, Pauses
from nodectl.scheduler.arrays import Arrays, is_waiting_array
from nodectl.scheduler.fair_share import FairShare
from nodectl.scheduler.happened import Outcome
from nodectl.scheduler.limits import Accounts, Demand, given
from nodectl.scheduler.line import Line
from nodectl.scheduler.policy import Policy
from nodectl.scheduler.priority import Priority
from nodectl.scheduler.waits import Waits
from nodectl.scheduler.watchers import NEVER
from nodectl.scheduler.week import Week, end_of
from nodectl.selection.host import Selection
from nodectl.selection.records import JobRecord, JobResources

YEAR = 365 * 86_400.0
"""After how long a job without a time limit is expected to end."""
HELD = {"user": reasons.HELD_BY_USER, "admin": reasons.HELD_BY_ADMIN}
_AT_A_TIME = 1000


@dataclass(frozen=True, slots=True)
class Bar:
    """The reason for keeping a job out of the line. `until`: the time at which the bar ends by itself, or 0."""

    reason: str
    words: str
    until: float = 0.0


class Book:
    """The unfinished jobs.

    `freed`: room for a job may have come about since the line was last looked at. `fresh`: jobs that have joined the
    line since then. `unlooked`: jobs waiting for other jobs, one of which has started or ended.
    """

    def __init__(  # the parts that it is made of
        self, selection: Selection, policy: Policy, usage: Iterable[Sequence[float]], new_id: Callable[[], int],
        outcome: Callable[[int, int | None], Outcome | None], week: Iterable[tuple[str, float, float, float]] = (),
    ) -> None:  # fmt: skip
        self.selection = selection
        self.policy = policy
        self.jobs: dict[int, JobRecord] = {}
        self.active: dict[int, JobRecord] = {}
        self.completing: dict[int, JobRecord] = {}
        self.stopped: dict[int, JobRecord] = {}
        self.resuming: dict[int, JobRecord] = {}  # suspended ones that go on as soon as their CPUs are free
        self.arrays = Arrays(new_id)
        self.waits = Waits(self.jobs, self.arrays, outcome)
        self.accounts = Accounts(policy)
        self.fair_share = FairShare(policy.priority_decay_half_life, usage)
        self.week = Week(policy.week_hours, week)
        self.priority = Priority(policy, sum(node.cpus for node in selection.nodes))
        self.line = Line(policy, self.priority, self.fair_share)
        self.agenda = Agenda()
        self.pauses = Pauses()
        self.staying = Pauses()  # running jobs that could not make room
        self.unlooked: dict[int, JobRecord] = {}
        self.freed = False
        self.version = 0  # changes with each change of the queue
        self.fresh: list[JobRecord] = []
        self.hopeless: dict[int, JobRecord] = {}  # jobs to end because their dependency can never be met
        self._rates: dict[int, int] = {}  # CPUs that a job's user is charged with now

    def restoring(self, jobs: Iterable[JobRecord], now: float) -> Generator[None, None, None]:
        """Take over the jobs of an earlier daemon; the selection already knows the active jobs.

        The caller may leave the generator at any yield.
        """
        known = sorted(jobs, key=lambda job: job.start_time)
        over: list[tuple[float, int]] = []  # end and number of jobs that nothing has run of since
        for job in known:
            self.add(job)
            yield
        for job in known:
            self.waits.restore(job)
            yield
            if job.is_active:
                self.active[job.job_id] = job
                if job.job_state == states.COMPLETING:
                    self.completing[job.job_id] = job
                self.accounts.started(job)
                self.arrays.started(job)
                if job.job_state == states.SUSPENDED:
                    job.suspend_time = job.suspend_time or now  # a step's file does not say since when
                    self.stopped[job.job_id] = job
                if job.job_state != states.SUSPENDED or job.suspended_by_owner:
                    self._charge(job, self._since(job, job.start_time, now))
                if job.job_state == states.COMPLETING and 0 < job.end_time <= now:
                    over.append((job.end_time, job.job_id))
                job.end_time = self.expected_end(job, now)
        for end, number in sorted(over):
            job = self.jobs[number]
            self._discharge(job, self._since(job, end, now))
        for job in known:
            yield
            if job.job_state != states.PENDING:
                continue
            if job.details.dependency:  # the outcomes are in the history: `catch_up` asks
                job.state_reason, job.state_desc = reasons.DEPENDENCY, _waits_for(job)
                self.unlooked[job.job_id] = job
            else:
                self.place(job, now)
        self.freed = True

    def add(self, job: JobRecord) -> None:
        """Register a job."""
        self.jobs[job.job_id] = job
        self.accounts.submitted(job)
        self.arrays.add(job)
        self.waits.known(job)

    def place(self, job: JobRecord, now: float) -> None:
        """Put a waiting job in line, or note the bar against the job."""
        self.version += 1
        self.line.remove(job, now)
        job.job_state = states.PENDING
        bar = self.bar(job, now)
        job.state_reason, job.state_desc = (bar.reason, bar.words) if bar is not None else ("", "")
        if self.waits.is_unfinished(job):
            self.unlooked[job.job_id] = job
        deadline = self.latest_start(job)
        if deadline:
            self.agenda.note(deadline, job.job_id)
        if bar is None:
            self._last_as_long(job, now)
            job.eligible_time = min(job.eligible_time or now, now)  # an earlier daemon's clock may have been ahead
            self.line.add(job, now)
            self.fresh.append(job)
            if self.week:
                self.agenda.note(end_of(now), job.job_id)
            return
        if bar.reason == reasons.NEVER_SATISFIED and job.details.kill_invalid_dep:
            self.hopeless[job.job_id] = job
        if bar.until:
            self.agenda.note(bar.until, job.job_id)
        if bar.reason != reasons.LAUNCH_FAILURE:
            job.eligible_time = 0.0

    def _last_as_long(self, job: JobRecord, now: float) -> None:
        """Give a job expanding a running job the time limit at which the running job ends."""
        target = self.waits.expands(job)
        if target is not None and target.is_active:
            job.time_limit = max(60, math.ceil(target.end_time - now)) if target.time_limit else 0

    def clock_set(self, now: float, by: float) -> None:
        """Correct all times after the clock was set by `by` seconds, less than 0 for back.

        Running jobs are as old as before, and no user is charged for the difference.
        """
        self.version += 1
        self.fair_share.clock_set(by)
        self.week.clock_set(by)
        for job in self.active.values():
            job.start_time += by
            job.clock_set += by
            if job.suspend_time:
                job.suspend_time += by
            job.end_time = self.expected_end(job, now)
        if by < 0:
            self.clock_set_back(now, -by)
        self.freed = True

    def clock_set_back(self, now: float, by: float) -> None:
        """Correct all times after the clock was set back by `by` seconds. No job loses the time waited."""
        self.version += 1
        self.line.clock_set_back(now)
        for job in [one for one in self.jobs.values() if one.job_state == states.PENDING]:
            if job.eligible_time > now:
                job.eligible_time -= by
            self.place(job, now)
        for job in self.active.values():
            job.start_time = min(job.start_time, now)
            job.suspend_time = min(job.suspend_time, now)
            job.end_time = self.expected_end(job, now)
        self.freed = True

    def bar(self, job: JobRecord, now: float) -> Bar | None:
        """Return the bar against putting a job in line, or None."""
        if job.held:
            who = "its user" if job.held == "user" else "an administrator"
            again = job.held != "user" and job.restart_cnt  # a prolog that failed holds it, too
            words = "it did not start, or was queued again, and is held" if again else f"{who} holds it"
            return Bar(HELD.get(job.held, HELD["admin"]), words)
        at = self.waits.state(job, now)
        if at == NEVER:
            return Bar(reasons.NEVER_SATISFIED, f"what it waits for will not happen: {job.details.dependency}")
        if at is None or at > now:
            return Bar(reasons.DEPENDENCY, _waits_for(job), at or 0.0)
        begin = job.details.begin_time
        if begin > now:
            return Bar(reasons.BEGIN_TIME, f"it is not to begin within the next {duration(round(begin - now))}", begin)
        until, words = self.pauses.until(job.job_id, now)
        return Bar(reasons.LAUNCH_FAILURE, f"it could not start, and is tried again: {words}", until) if until else None

    def latest_start(self, job: JobRecord) -> float:
        """Return the latest start for meeting the job's deadline; 0 for a job without a deadline."""
        deadline = job.details.deadline
        return max(deadline - job.time_limit, 1.0) if deadline else 0.0

    def look_again(self, now: float) -> list[JobRecord]:
        """Look at the jobs due now; return the jobs too late to meet the deadline."""
        late = []
        for number in self.agenda.due(now):
            job = self.jobs.get(number)
            self.freed = self.freed or number in self.staying
            if job is None or job.job_state != states.PENDING:
                continue
            deadline = self.latest_start(job)
            if deadline and now >= deadline:
                late.append(job)
            elif job not in self.line:
                self.place(job, now)
            elif self.week:  # a new week may have begun
                self.freed = True
                self.agenda.note(end_of(now), number)
        return late

    def began(self, job: JobRecord, now: float) -> None:
        """Note the start of the job, which now holds resources."""
        self.version += 1
        self.line.remove(job, now, started=True)
        job.job_state, job.state_reason, job.state_desc = states.RUNNING, "", ""
        job.start_time, job.suspended_seconds, job.suspend_time, job.preempted_by = now, 0.0, 0.0, 0
        job.suspended_by_owner, job.clock_set = False, 0.0
        job.eligible_time = job.eligible_time or now
        job.end_time = self.expected_end(job, now)
        self.active[job.job_id] = job
        self.accounts.started(job)
        self.arrays.started(job)
        self._charge(job, now)
        self._look_at(self.waits.started(job))

    def ending(self, job: JobRecord, now: float) -> None:
        """Note the beginning of the job's termination."""
        self.version += 1
        self._discharge(job, now)
        job.job_state = states.COMPLETING
        self.completing[job.job_id] = job
        self.resuming.pop(job.job_id, None)
        self.stopped.pop(job.job_id, None)
        self.selection.job_fini(job)

    def vacated(self, job: JobRecord, now: float) -> None:
        """Note the end of the job's processes: the job holds nothing any more."""
        self.version += 1
        self._discharge(job, now)
        for index in (self.active, self.completing, self.resuming, self.stopped):
            index.pop(job.job_id, None)
        self.staying.forget(job.job_id)
        self.selection.released(job)
        for giver in self.givers(job):
            held, giver.given_resrcs = giver.given_resrcs, None
            if held is not None:
                self.selection.take_back(giver, held)
        self.accounts.stopped(job)
        self.arrays.stopped(job)
        self.freed = True

    def merged(self, source: JobRecord, target: JobRecord, held: JobResources, now: float) -> None:
        """Note the transfer of all resources from `source` to `target`; the termination of `source` begins at once."""
        self.version += 1
        source.given_to, source.given_resrcs = target.job_id, held
        for job in (source, target):
            self._discharge(job, now)
            self.accounts.stopped(job)
            self.accounts.started(job)
        self._charge(target, now)

    def givers(self, job: JobRecord) -> list[JobRecord]:
        """Return the completing jobs whose resources went to this job; the givers' processes may still use them."""
        return [one for one in self.completing.values() if one.given_to == job.job_id and one.given_resrcs is not None]

    def over(self, job: JobRecord, state: str, now: float) -> None:
        """Remove an ended job from the queue."""
        self.version += 1
        self.line.remove(job, now)
        self.jobs.pop(job.job_id, None)
        self.pauses.forget(job.job_id)
        self.arrays.gone(job)
        self.accounts.gone(job)
        self.waits.gone(job)
        self.selection.forget(job)
        self._look_at(self.waits.ended(job, state))

    def tasks_cancelled(self, job: JobRecord, gone: job_array.Tasks) -> None:
        """Note the cancellation of waiting tasks of an array."""
        self._look_at(self.waits.tasks_cancelled(job, gone))

    def suspended(self, job: JobRecord, now: float, *, by_owner: bool = False) -> None:
        """Note the suspension of the job, which frees the job's CPUs.

        Where its owner has suspended it, its time limit runs on and its user is charged, because the job keeps memory
        and devices.
        """
        self.version += 1
        if not by_owner:
            self._discharge(job, now)
        job.job_state, job.suspend_time, job.suspended_by_owner = states.SUSPENDED, now, by_owner
        job.end_time = self.expected_end(job, now)
        self.stopped[job.job_id] = job
        self.staying.forget(job.job_id)
        self.freed = True

    def stays(self, job: JobRecord, now: float) -> None:
        """Note the failure of a running job to make room, and leave the job alone for a while."""
        self.version += 1
        job.preempted_by = 0
        self.agenda.note(self.staying.fail(job.job_id, "", now), job.job_id)
        self.freed = True

    def resumed(self, job: JobRecord, now: float) -> None:
        """Note the resumption of the suspended job, which has the CPUs again."""
        self.version += 1
        is_charged = job.suspended_by_owner
        if not is_charged:
            job.suspended_seconds += max(0.0, now - job.suspend_time)
        job.job_state, job.suspend_time, job.preempted_by = states.RUNNING, 0.0, 0
        job.suspended_by_owner = False
        job.state_reason = job.state_desc = ""
        job.end_time = self.expected_end(job, now)
        self.resuming.pop(job.job_id, None)
        self.stopped.pop(job.job_id, None)
        if not is_charged:
            self._charge(job, now)

    def expected_end(self, job: JobRecord, now: float) -> float:
        """Return the latest end of an active job."""
        if not job.time_limit or (job.job_state == states.SUSPENDED and not job.suspended_by_owner):
            return max(job.start_time, now) + YEAR
        return job.start_time + job.time_limit + job.suspended_seconds

    def _look_at(self, jobs: list[JobRecord]) -> None:
        """Mark jobs with possibly met dependencies. There may be many; `catch_up` looks at the marked jobs."""
        if jobs:
            self.unlooked.update((job.job_id, job) for job in jobs)

    def catch_up(self, now: float) -> Iterator[None]:
        """Look at the marked jobs, at most 1000 in a call. Yields after each job; jobs may join the line meanwhile."""
        for _ in range(_AT_A_TIME):
            if not self.unlooked:
                return
            number, job = next(iter(self.unlooked.items()))
            del self.unlooked[number]
            if job.job_state == states.PENDING and self.jobs.get(number) is job:
                self.place(job, now)
            yield None

    def _charge(self, job: JobRecord, now: float) -> None:
        self.version += 1  # also while the jobs of an earlier daemon are taken over
        if job.job_id not in self._rates:
            self._rates[job.job_id] = job.total_cpus
            self.fair_share.begin(job.user_id, job.total_cpus, now)
            self.week.begin(job, Demand() if job.job_resrcs is None else given(job.job_resrcs), now)

    def _since(self, job: JobRecord, at: float, now: float) -> float:
        """Return `at`, or a later time until which the job's user is charged already, after a restart."""
        return self.week.since(job.user_name, self.fair_share.since(job.user_id, at, now), now)

    def _discharge(self, job: JobRecord, now: float) -> None:
        cpus = self._rates.pop(job.job_id, None)
        if cpus is not None:
            self.fair_share.end(job.user_id, cpus, now)
            self.week.end(job, now)

    def split(self, job: JobRecord, index: int | None) -> JobRecord:
        """Split a task off a waiting array, as a job about to start."""
        task = self.arrays.split(job, index)
        if task is not job:
            self.selection.info.copy(job, task)
            self.jobs[task.job_id] = task
            self.accounts.submitted(task)
        self.waits.task_split(job, task)
        return task

    def set_apart(self, job: JobRecord, index: int) -> JobRecord:
        """Split a task off a waiting array, as a job still waiting for the same things as the array."""
        task = self.arrays.split(job, index)
        if task is not job:
            self.selection.info.copy(job, task)
            self.jobs[task.job_id] = task
            self.accounts.submitted(task)
            self.waits.known(task)
        self.waits.restore(task)
        return task

    def next_index(self, job: JobRecord) -> int | None:
        """Return the index of the array's next task; None for a plain job, or where no task may start."""
        if not is_waiting_array(job):
            return None
        index = self.waits.next_task(job)
        if index is None and self.waits.is_unfinished(job):
            self.unlooked[job.job_id] = job
        return index


def _waits_for(job: JobRecord) -> str:
    return f"it waits for other jobs: {job.details.dependency}"
