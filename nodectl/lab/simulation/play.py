"""A workload played in simulated time: the queue decides, the select plugin places, and every job lives a whole life.

Time goes from one event to the next: a submission, an end, a limit, an event of a node, a time requested by the queue.
At each event the player asks the queue and carries the decisions out as the daemon would: job_test and job_begin (by
the queue), job_ready until it says 1, the step's nodes, signals, job_fini before anything of the job ends, step_finish
before and after the step's end.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from nodectl.lab.simulation.rules import Rules
from nodectl.lab.simulation.story import Played, Run, Story, Violation
from nodectl.lab.simulation.submission import BEGINNING, number_of_tasks, record_of, shares_of
from nodectl.lab.simulation.workload import NodeEvent, WorkJob, Workload
from nodectl.model import reasons, states
from nodectl.scheduler.decisions import CANCEL, REQUEUE, SUSPEND, Decision, End, NotAdmitted, Preempt, Resume, Start
from nodectl.scheduler.policy import Policy
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.host import Selection
from nodectl.selection.modes import NODE_STATE_DOWN, NODE_STATE_DRAIN, NODE_STATE_IDLE
from nodectl.selection.records import JobRecord, StepRecord

_SIGTERM = 15
_READY_EVERY, _READY_AT_MOST = 1.0, 300
_IDLE_WAKES = 2000  # consecutive wakes requested by the queue without any decision
REFUSED = "REFUSED"
_OWN_FAULT = (reasons.DEPENDENCY, "JobHeld", "QOSMax")  # reasons caused by the user, for which a job may wait for ever


class _Active:
    """A job with resources.

    `left`: seconds to the end of the program or the limit, whichever comes first, as of `since`.
    """

    __slots__ = ("how", "left", "run", "since", "step", "token")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.step: StepRecord | None = None
        self.left = 0.0
        self.since = -1.0  # not yet ready, or suspended
        self.how = ""
        self.token = 0


class Player:
    """The player of a workload, for a single play.

    `epilog`: seconds for which an ended job still holds its resources. `ended` is called with the number of ended jobs.
    """

    def __init__(
        self, selection: Selection, policy: Policy, workload: Workload, *, epilog: float = 0.0,
        ended: Callable[[int], object] = lambda jobs: None,
    ) -> None:  # fmt: skip
        self._selection = selection
        self._workload = workload
        self._epilog = epilog
        self._told_ended = ended
        self._jobs_over = 0
        numbers = count(max(job.number for job in workload.jobs) + 1)
        self.scheduler = Scheduler(selection, policy, new_id=lambda: next(numbers), outcome=self._outcome)
        # A forecast counts on limits. A job ending at its limit and the job it waited for each take an epilog more.
        self.rules = Rules(selection, self.scheduler, slack=2 * epilog + 2.0)
        self.stories: dict[tuple[int, int | None], Story] = {}
        self.now = 0.0
        self._work = {job.number: job for job in workload.jobs}
        self._waiting: dict[int, list[WorkJob]] = {}  # by the number of the job for whose end the user waits
        self._tasks_left: dict[int, int] = {}  # by job: tasks that have not ended
        self._active: dict[JobRecord, _Active] = {}
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = count()
        self._wakes: set[float] = set()
        self._idle_wakes = 0

    def play(self) -> Played:
        """Play the whole workload. Return the record of the play."""
        began = time.perf_counter()
        for job in self._workload.jobs:
            if job.after:
                self._waiting.setdefault(job.after, []).append(job)
            else:
                self._at(job.submit, self._submit, job)
        for event in self._workload.events:
            self._at(event.time, self._node_event, event)
        while self._heap and self._idle_wakes < _IDLE_WAKES:
            self.now = self._heap[0][0]
            while self._heap and self._heap[0][0] <= self.now:
                _, _, function, arguments = heapq.heappop(self._heap)
                function(*arguments)
            self._schedule()
            self._ask_when()
            self._told_ended(self._jobs_over)
        return self._played(time.perf_counter() - began)

    def _at(self, moment: float, function: Callable[..., object], *arguments: Any) -> None:
        heapq.heappush(self._heap, (moment, next(self._order), function, arguments))

    @property
    def _absolute(self) -> float:
        return BEGINNING + self.now

    def _schedule(self) -> None:
        decided = 0
        self.rules.before(self.now)
        for decision in self.scheduler.schedule(self._absolute):
            if decision is not None:
                decided += 1
                self._carry_out(decision)
        self.rules.after(self.now)
        if decided or self._active:
            self._idle_wakes = 0

    def _ask_when(self) -> None:
        """Ask the queue for the next time to schedule, and add an event then, since the workload may have none."""
        when = self.scheduler.next_time(self._absolute)
        if when is None:
            return
        moment = max(when - BEGINNING, self.now + 0.001)
        if moment not in self._wakes and not (self._heap and self._heap[0][0] <= moment):
            self._wakes.add(moment)
            self._at(moment, self._wake, moment)

    def _wake(self, moment: float) -> None:
        self._wakes.discard(moment)
        self._idle_wakes += 1

    def _submit(self, work: WorkJob) -> None:
        self._idle_wakes = 0
        job = record_of(work, self._absolute)
        self._selection.info.admit(job)
        tasks = len(work.runs) if not work.array else number_of_tasks(work.array)
        self._tasks_left[work.number] = max(1, tasks)
        try:
            self.scheduler.submit(job, self._absolute)
        except NotAdmitted as refused:
            story = self._story(work, None)
            story.state, story.reason, story.end = REFUSED, str(refused), self.now
            self._selection.forget(job)
            self._is_over(work.number, everything=True)
            return
        if not work.array:
            self._story(work, None)
        self.rules.submitted(job, self._tasks_left[work.number], self.now)

    def _story(self, work: WorkJob, task: int | None, job_id: int = 0) -> Story:
        key = (work.number, task)
        if key not in self.stories:
            label = str(work.number) if task is None else f"{work.number}_{task}"
            ready = max(self.now if not work.array else work.submit, work.begin)
            submitted = work.submit if work.array and not work.after else self.now
            self.stories[key] = Story(
                job_id or work.number, label, work.user, submitted, max(ready, submitted), work.cpus, work.limit
            )
        return self.stories[key]

    def _story_of(self, job: JobRecord) -> Story:
        work = self._work[job.array_job_id or job.job_id]
        return self._story(work, job.array_task_id, job.job_id)

    def _carry_out(self, decision: Decision) -> None:
        job = decision.job
        if isinstance(decision, Start):
            self._start(job)
        elif isinstance(decision, Resume):
            self._go_on(job)
        elif isinstance(decision, End):
            self._ended_waiting(job, decision)
        elif isinstance(decision, Preempt):
            self.rules.preempts(decision, self.now)
            if decision.how == SUSPEND:
                self._suspend(job)
            elif decision.how == REQUEUE:
                self._end(job, states.PREEMPTED, requeue=True)
            elif decision.how == CANCEL:
                self._end(job, states.PREEMPTED)

    def _start(self, job: JobRecord) -> None:
        story = self._story_of(job)
        if job.eligible_time:
            story.ready = max(story.ready, min(self.now, job.eligible_time - BEGINNING))
        run = Run(self.now, shares_of(job, self._selection.nodes))
        story.runs.append(run)
        story.state = states.RUNNING
        self._active[job] = _Active(run)
        self.rules.started(job, run, self.now)
        self._get_ready(job, 0)

    def _get_ready(self, job: JobRecord, tries: int) -> None:
        """Ask the plugin repeatedly until the job's nodes are ready; then start the step."""
        active = self._active.get(job)
        if active is None or active.how:
            return
        if not self._selection.job_ready(job):
            if tries < _READY_AT_MOST:
                self._at(self.now + _READY_EVERY, self._get_ready, job, tries + 1)
                return
            self._close(job, "NOT_READY")
            self.scheduler.begin_failed(job, "its nodes did not become ready", self._absolute)
            self._story_of(job).state = states.PENDING
            return
        work = self._work[job.array_job_id or job.job_id]
        run, limit = work.run_of(job.array_task_id), job.time_limit
        active.left = min(run, limit) if limit else run
        step = StepRecord(job, 0, job.name, job.details.num_tasks, self._absolute)
        self._selection.step_pick_nodes(job, step, max(1, job.node_cnt))
        active.step = step
        self._count_down(job, active)

    def _count_down(self, job: JobRecord, active: _Active) -> None:
        active.since = self.now
        active.token += 1
        self._at(self.now + active.left, self._run_out, job, active, active.token)

    def _run_out(self, job: JobRecord, active: _Active, token: int) -> None:
        """End the job, because the program ends or has reached the limit."""
        if self._active.get(job) is not active or active.token != token:
            return
        work = self._work[job.array_job_id or job.job_id]
        if job.time_limit and job.time_limit < work.run_of(job.array_task_id):
            self._selection.job_signal(job, _SIGTERM)
            self._end(job, states.TIMEOUT)
        else:
            self._end(job, states.FAILED if work.exit_code else states.COMPLETED)

    def _suspend(self, job: JobRecord) -> None:
        active = self._active[job]
        why = self.scheduler.suspend(job, self._absolute)
        if why:
            self.rules.broken(self.now, "not suspended", (job.job_id,), why)
            return
        active.token += 1
        if active.since >= 0:
            active.left -= self.now - active.since
            active.since = -1.0
        active.run.pauses.append((self.now, -1.0))
        self.rules.suspended(job, self.now)

    def _go_on(self, job: JobRecord) -> None:
        active = self._active[job]
        active.run.pauses[-1] = (active.run.pauses[-1][0], self.now)
        self.rules.resumed(job, active.run, self.now)
        if active.step is None:
            self._get_ready(job, 0)
        else:
            self._count_down(job, active)

    def _end(self, job: JobRecord, how: str, *, requeue: bool = False) -> None:
        """Begin the termination: tell the plugin before any part of the job ends."""
        active = self._active[job]
        if active.how:
            return
        active.token += 1
        active.how = how
        self.scheduler.ending(job, self._absolute)
        if active.step is not None:
            self._selection.step_finish(active.step, True)
        if self._epilog:
            self._at(self.now + self._epilog, self._over, job, how, requeue)
        else:
            self._over(job, how, requeue)

    def _over(self, job: JobRecord, how: str, requeue: bool) -> None:
        """Finish the termination: end the step, and requeue or end the job."""
        active = self._active[job]
        if active.step is not None:
            self._selection.step_finish(active.step, False)
        story = self._close(job, how)
        if requeue:
            self.scheduler.requeue(job, self._absolute)
            story.state = states.PENDING
            return
        work = self._work[job.array_job_id or job.job_id]
        code = work.exit_code if how == states.FAILED else 0
        self.scheduler.ended(job, how, code, self._absolute)
        story.state, story.end = how, self.now
        self._selection.forget(job)
        self.rules.ended(job, how, code, self.now)
        self._is_over(work.number)

    def _close(self, job: JobRecord, how: str) -> Story:
        """Close the job's run. The caller decides about the job."""
        active = self._active.pop(job)
        run = active.run
        run.end, run.how = self.now, how
        if run.pauses and run.pauses[-1][1] < 0:
            run.pauses[-1] = (run.pauses[-1][0], self.now)
        self.rules.gave_back(job)
        return self._story_of(job)

    def _ended_waiting(self, job: JobRecord, decision: End) -> None:
        """Record the end of a waiting job, given up by the queue for a deadline or an impossible dependency."""
        work = self._work[job.array_job_id or job.job_id]
        story = self._story_of(job)
        story.state, story.reason, story.end = decision.state, decision.reason, self.now
        self._selection.forget(job)
        self.rules.ended(job, decision.state, 0, self.now)
        self._is_over(work.number, everything=bool(job.array_tasks))

    def _is_over(self, number: int, *, everything: bool = False) -> None:
        """Count the end of a task, or of the whole job.

        Submit the jobs which wait for this end, after their think time.
        """
        self._tasks_left[number] = 0 if everything else self._tasks_left[number] - 1
        if self._tasks_left[number] <= 0:
            self._jobs_over += 1
            for work in self._waiting.pop(number, ()):
                self._at(self.now + work.think, self._submit, work)

    def _outcome(self, job_id: int, task: int | None) -> str | None:
        """Return the end state of a job forgotten by the queue, None if unknown."""
        found = self.rules.outcome(job_id, task)
        return None if found is None else found[0]

    def _node_event(self, event: NodeEvent) -> None:
        self._idle_wakes = 0
        node = self._selection.nodes.by_name.get(event.node)
        if node is None:
            self.rules.notes.append(f"{event.time:g} s: there is no node {event.node}")
            return
        node.node_state = {
            "drain": node.node_state | NODE_STATE_DRAIN,
            "down": NODE_STATE_DOWN,
            "resume": NODE_STATE_IDLE,
        }[event.state]
        node.reason = "" if event.state == "resume" else f"{event.state} by the workload"
        self._selection.update_node_state(node)
        self.scheduler.changed()
        self.rules.forget_promises()
        if event.state == "down":
            for job, active in list(self._active.items()):
                if node.index in active.run.shares and not active.how:
                    self._lost_node(job, node.index)

    def _lost_node(self, job: JobRecord, index: int) -> None:
        work = self._work[job.array_job_id or job.job_id]
        active = self._active[job]
        if work.no_kill and len(active.run.shares) > 1 and job.job_state == states.RUNNING:
            why = self._selection.resized(job, self._selection.nodes[index])
            if not why:
                self._shrunk(job, active)
                return
            self.rules.notes.append(f"{self.now:g} s: job {job.job_id}: {why}")
        self._end(job, states.NODE_FAIL, requeue=work.requeue and job.job_state in (states.RUNNING, states.SUSPENDED))

    def _shrunk(self, job: JobRecord, active: _Active) -> None:
        """Let the job go on with fewer nodes, as another run for the picture."""
        active.run.end, active.run.how = self.now, "RESIZED"
        active.run = Run(self.now, shares_of(job, self._selection.nodes))
        self._story_of(job).runs.append(active.run)
        self.rules.gave_back(job)
        self.rules.took(job, active.run, self.now)

    def _played(self, spent: float) -> Played:
        self.rules.at_the_end(self.now, self._left_over())
        played = Played(
            self._selection.type,
            self._workload.name,
            tuple((node.name, node.cores, node.cpus, node.real_memory) for node in self._selection.nodes),
            sorted(self.stories.values(), key=lambda story: (story.submit, story.job_id)),
            notes=[*self._workload.notes, *self.rules.notes],
            end=max([self.now if self._active else 0.0, *(story.end for story in self.stories.values())]),
            real_seconds=spent,
        )
        played.violations = sorted(self.rules.violations, key=lambda one: one.time)
        return played

    def _left_over(self) -> list[Violation]:
        """Return violations for the submissions without an end."""
        found = []
        known = {job.array_job_id or job.job_id: job for job in self.scheduler.jobs.values()}
        for number, left in self._tasks_left.items():
            if left <= 0:
                continue
            job = known.get(number)
            if job is None:
                words = f"job {number} has not ended, and the queue does not know it"
                found.append(Violation(self.now, "lost", (number,), words))
                continue
            story = self._story(self._work[number], None) if not self._work[number].array else None
            if story is not None:
                story.reason = job.state_reason
            if job.job_state == states.PENDING and job.state_reason.startswith(_OWN_FAULT):
                self.rules.notes.append(f"job {number} never started: {job.state_reason}")
                continue
            words = f"job {number} never ended: it is {job.job_state}, {job.state_reason or 'without a reason'}"
            found.append(Violation(self.now, "never started", (number,), words))
        return found
