"""The controller of this node's jobs: accepts jobs, carries out the scheduler's decisions and records the results.

The daemon has one such object and uses it only from its event loop. The state of a job on the disk and its processes
agree whenever the daemon may die: a job is RUNNING on the disk before any part of it begins, and has ended there
together with its last step. Other modules of this package do the parts: `table.py` knows the jobs, `rounds.py` drives
the scheduler, `starts.py` begins batch jobs, `restore.py` takes over the jobs of an earlier daemon.

The end of a running job has two moments. When its termination begins, the select plugin is told, before any process is
signalled. When nothing of the job is left, its resources are free. Between the two, a Doom holds the state that the job
will get.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from nodectl import messages
from nodectl.kernel.signals import KILL
from nodectl.model import states
from nodectl.model.config import Config
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH as SCRIPT
from nodectl.model.step_number import EXTERN
from nodectl.model.warning import warning_of
from nodectl.model.wire.dispatch import Refused, subject
from nodectl.model.wire.names import QUEUED_AGAIN
from nodectl.model.words import duration
from nodectl.scheduler.decisions import REQUEUE, SUSPEND, Decision, End, NotAdmitted, Preempt, Resume, Start
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.host import Selection
from nodectl.selection.modes import NODE_STATE_DRAIN
from nodectl.selection.records import BATCH, JobRecord, NodeRecord, StepRecord
from nodectl.service.daemon.admission.growth import Growth
from nodectl.service.daemon.admission.share import share_of
from nodectl.service.daemon.controller.commits import NotWritten
from nodectl.service.daemon.controller.departures import Departures
from nodectl.service.daemon.controller.job_request import ADMIN
from nodectl.service.daemon.controller.leases import Leases
from nodectl.service.daemon.controller.rounds import Rounds
from nodectl.service.daemon.controller.spool import Spool
from nodectl.service.daemon.controller.starts import CannotBegin, Starts
from nodectl.service.daemon.controller.table import JobTable
from nodectl.service.daemon.controller.wall_clock import WallClock
from nodectl.service.daemon.history.batch_text import PackedText
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks, TimeToEnd
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.jobs.suspension import Suspensions
from nodectl.service.daemon.jobs.watcher import Watcher
from nodectl.service.daemon.notices.idle_watch import IdleWatch
from nodectl.service.daemon.notices.notices import Notices
from nodectl.service.daemon.steps.live import LiveStep

_ANSWER_SECONDS = 5.0
_USAGE_SECONDS = 5.0
_HOURS_SECONDS = 600.0  # a reset of the machine takes no more of what running jobs have used of their week
_WARN_AGAIN = 2.0  # while the job stands still, or its script has not begun
_LONGEST_WAIT = 3600.0  # the clock may be set meanwhile
_GROW_AGAIN = 5.0  # seconds
_GROW_PATIENCE = 60.0  # beyond the time that processes get to end
DRAIN, RESUME = "drain", "resume"


class Parts(NamedTuple):
    """The parts of the daemon used by the queue."""

    registry: Registry
    further_steps: FurtherSteps
    suspension: Suspensions
    starts: Starts
    spool: Spool
    growth: Growth
    notices: Notices
    idle: IdleWatch


class Doom(NamedTuple):
    """The final state of a job, decided before the job is over; `hold`: the holder of a job to be requeued."""

    state: str
    reason: str
    hold: str = ""


class Controller(Watcher):
    """The controller of the node, and the Watcher of the running jobs.

    `scheduler`, `selection` and `rounds` exist once the queue has begun, before any call comes.
    """

    scheduler: Scheduler
    selection: Selection
    rounds: Rounds

    def __init__(self, config: Config, table: JobTable, parts: Parts) -> None:
        self.config = config
        self.table = table
        self.parts = parts
        self.leases = Leases(config.interactive_lease, self._client_gone)
        self.tasks = BackgroundTasks()
        self.departures = Departures(parts.registry, parts.further_steps)
        parts.starts.is_over = self.is_doomed
        self._dooms: dict[int, Doom] = {}
        self._starting: set[int] = set()  # jobs whose first step is being made
        self._steps: dict[int, dict[int, StepRecord]] = {}  # that run, as the select plugin sees them, by job
        self._killed: set[tuple[int, int]] = set()  # of these, job and step
        self._early: dict[int, Mapping[str, Any]] = {}  # ends of jobs noticed before the queue started
        self._stopping: set[int] = set()  # jobs being suspended to make room
        self._growing: set[int] = set()  # jobs that are given the resources of other jobs
        self._warnings: dict[int, asyncio.TimerHandle] = {}
        self._usage_due = False
        self._begun = False
        self._clock = WallClock()

    def now(self) -> float:
        """Return the time. Where the clock was set meanwhile, correct the times of the queue and of its jobs first."""
        by = self._clock.set_by() if self._begun else 0.0
        now = time.time()
        if by:
            messages.tell("clock-set", f"the clock was set {'forward' if by > 0 else 'back'} by {duration(abs(by))}")
            self.scheduler.clock_set(by, now)
            for job in self.table.jobs.values():
                if job.is_active:
                    self.table.changed_soon(job)
            self.rounds.kick()
        return now

    def begin(self, scheduler: Scheduler, selection: Selection) -> None:
        """Start the queue, with the jobs left by an earlier daemon."""
        self.scheduler, self.selection = scheduler, selection
        self.rounds = Rounds(scheduler, self._carry_out, self.table.tell_all, self.now)
        self._begun = True
        for live in self.parts.registry.live.values():
            self._restore_step(live.step)
        early, self._early = self._early, {}
        for job in self.table.jobs.values():
            if job.is_active and (self.parts.registry.first(job.job_id) is not None or job.job_id in early):
                self.parts.notices.begun(job)
        for job_id, record in early.items():
            self.job_over(job_id, record)
        self.parts.notices.clock = self.now
        self.parts.notices.begin()
        self.parts.idle.tell, self.parts.idle.end = self._tell_idle, self._end_idle
        self.parts.idle.begin(self.table.jobs)
        for job in self.table.jobs.values():
            self._watch_warning(job)
            if job.job_state in (states.RUNNING, states.SUSPENDED):
                self.tasks.begin(self._take_over(job))
        self._go_on_expanding()
        if self.config.week_hours:
            self._write_hours()
        self.table.commits.soon()
        self.rounds.kick()

    def has_early(self, job_id: int) -> bool:
        """Return True for a job whose end the daemon noticed before the queue started."""
        return job_id in self._early

    def end_of(self, job: JobRecord) -> Mapping[str, Any] | None:
        """Return the record of the first step of a restored job of which nothing runs any more, else None."""
        registry = self.parts.registry
        first = registry.first(job.job_id)
        ending = None if first is None else registry.ending.get(first.key)
        if ending is None or registry.steps_of(job.job_id):
            return self._early.get(job.job_id)
        return ending.record

    # Jobs come in.

    async def submit(self, job: JobRecord, batch: PackedText | None = None) -> None:
        """Add a numbered job to the queue. Return once the job is on the disk. Raises Refused."""
        try:
            self.scheduler.submit(job, self.now())
        except NotAdmitted as error:
            raise Refused("LaunchRefused", str(error), exit_status=1, **subject(error.subject)) from None
        self.table.add(job, batch)
        try:
            self.table.check_bytes(job.user_id)
        except Refused:
            self._withdraw(job)
            raise
        if batch is None:
            self.leases.begin(job.job_id)
        self.rounds.kick()
        try:
            await self.table.commits.durable()
        except NotWritten as error:
            self._withdraw(job)
            raise Refused("LaunchRefused", str(error), exit_status=1) from None

    def _withdraw(self, job: JobRecord) -> None:
        self.leases.end(job.job_id)
        if self.scheduler.jobs.get(job.job_id) is job and job.job_state == states.PENDING:
            self.scheduler.cancel(job, self.now())
            self.table.withdraw(job)

    def try_start(self, job: JobRecord) -> str:
        """Start a job without a row in the store: while the job runs, the file of the first step takes the place of the
        row.

        Return why the job has to wait, or "" when it is RUNNING. Raises Refused for a job that can never start.
        """
        with self.selection.together:
            try:
                why = self.scheduler.try_start(job, self.now())
            except NotAdmitted as error:
                raise Refused("LaunchRefused", str(error), exit_status=1, **subject(error.subject)) from None
            if not why and not self.selection.job_ready(job):
                self.scheduler.ended(job, states.CANCELLED, 1, self.now())
                return "its nodes are not ready"
        if not why:
            self.table.add_unwritten(job)
        return why

    def take_granted(self, job_id: int, uid: int, caller: int) -> JobRecord:
        """Return a job with granted resources whose client now launches the first step. Raises Refused."""
        job = self.table.jobs.get(job_id)
        if job is None or job.user_id != uid or caller not in (0, uid):
            raise Refused("NoSuchJob", f"no job {job_id} waits for a launch of yours", subject="unknown")
        if job.job_state != states.RUNNING or job_id not in self.leases:  # or another call is launching it
            raise Refused("WrongState", f"job {job_id} is {job.job_state}: it does not wait for its first step")
        self.leases.end(job_id)
        self.parts.notices.begun(job)
        return job

    def is_queued(self, job_id: object) -> bool:
        """Return True for a job from the queue, False for a job started at once."""
        job = self.table.jobs.get(int(str(job_id))) if job_id is not None else None
        return job is not None and not self.table.is_unwritten(job)

    def never_began(self, job: JobRecord, why: str) -> None:
        """End a job whose first step did not begin; nothing of the job runs."""
        if self.scheduler.jobs.get(job.job_id) is not job or self.parts.registry.first(job.job_id) is not None:
            return
        if self.table.is_unwritten(job):
            self.scheduler.ended(job, states.FAILED, 1, self.now())
            self.table.withdraw(job)
        else:
            job.state_desc = why
            self._end_for_good(job, states.FAILED, 1)

    def _client_gone(self, job_id: int) -> None:
        job = self.table.jobs.get(job_id)
        if job is not None:
            self.cancel(job, "", states.CANCELLED, "no client waits for it any more")

    # What the scheduler decides.

    def _carry_out(self, decisions: list[Decision]) -> None:
        starts = [one for one in decisions if isinstance(one, Start)]
        for start in starts:
            self._changed(start)
            if start.job.held_by == BATCH:
                self._starting.add(start.job.job_id)  # its end may be wanted before `_begin_batch` is run
        for one in decisions:
            if isinstance(one, End):
                self._never(one.job, one.state, one.reason)
            elif isinstance(one, Preempt):
                self._preempt(one)
            elif isinstance(one, Resume):
                self.table.changed(one.job)
                self.tasks.begin(self.go_on(one.job))
        why = self.table.commits.now() if self.table.store.is_behind else ""
        for start in starts:
            if self.table.jobs.get(start.job.job_id) is not start.job:
                continue  # it was preempted in the same round
            self._watch_warning(start.job)
            if why:
                self._not_written(start, why)
            elif start.job.held_by == BATCH:
                self.tasks.begin(self._begin_batch(start.job))
            elif not self.selection.job_ready(start.job):
                self.tasks.begin(self._await_ready(start.job))

    def _not_written(self, start: Start, why: str) -> None:
        self._starting.discard(start.job.job_id)
        if not self._has_not_begun(start.job):
            self._begin_failed(start.job, why)
            self._changed(start)

    def _begin_failed(self, job: JobRecord, why: str) -> None:
        """Put the job back into the queue, without counting the failed run."""
        self.scheduler.begin_failed(job, why, self.now())
        job.restart_cnt -= 1

    def _changed(self, start: Start) -> None:
        self.table.changed(start.job)
        if start.array is not None:
            self.table.changed(start.array)

    async def _begin_batch(self, job: JobRecord) -> None:
        """Begin the first step of a batch job, already added to `_starting` by `_carry_out`."""
        try:
            await self.parts.starts.begin(self.selection, job)
        except CannotBegin as error:
            self._not_begun(job, str(error), for_good=error.for_good)
        except Exception as error:
            self._not_begun(job, f"internal error: {error!r}", for_good=True)
            raise
        finally:
            self._starting.discard(job.job_id)
        if self.parts.registry.first(job.job_id) is not None:
            self.parts.notices.begun(job)
        self._catch_up(job)

    def _not_begun(self, job: JobRecord, why: str, *, for_good: bool) -> None:
        if self._has_not_begun(job):
            return
        if for_good:
            messages.tell("job-cannot-begin", f"job {job.job_id} cannot begin: {why}", job=job.job_id, uid=job.user_id)
            job.state_desc = why
            self._end_for_good(job, states.FAILED, 1)
        else:
            self._begin_failed(job, why)
            self.table.changed_soon(job)
            self.rounds.kick()

    async def _await_ready(self, job: JobRecord) -> None:
        if not await self.parts.starts.ready(self.selection, job) and job.job_state == states.RUNNING:
            self._not_begun(job, "its nodes are not ready", for_good=False)

    def _preempt(self, one: Preempt) -> None:
        job = one.job
        why = f"preempted by job {one.for_job.job_id}"
        job.preempted_by = one.for_job.job_id
        if one.how == SUSPEND:
            self.table.changed(job)
            self._make_stop(job)
        elif one.how == REQUEUE:
            self.requeue(job, why)
        else:
            self.cancel(job, "", states.PREEMPTED, why)

    def _make_stop(self, job: JobRecord) -> None:
        if job.job_id not in self._stopping:  # else it is being suspended for another job, which has left the queue
            self._stopping.add(job.job_id)
            self.tasks.begin(self._stop(job))

    async def _stop(self, job: JobRecord) -> None:
        """Suspend a job to make room. If the job still runs afterwards, the scheduler tries other jobs."""
        try:
            await self.parts.suspension.suspend_job(job.job_id)
        except Refused as error:
            if job.job_state == states.RUNNING:  # else it has ended, or stands still already
                words = f"suspend job {job.job_id}: {error}"
                messages.tell("job-not-suspended", words, job=job.job_id, uid=job.user_id)
        finally:
            self._stopping.discard(job.job_id)
            if job.job_state == states.RUNNING:
                self.scheduler.stays(job, self.now())
                self.table.changed_soon(job)
                self.rounds.kick()

    async def _take_over(self, job: JobRecord) -> None:
        """Take over a job from an earlier daemon, which may have been suspending the job."""
        await self.parts.suspension.take_over(job.job_id)
        if job.job_state == states.RUNNING and job.preempted_by:
            self._make_stop(job)

    async def go_on(self, job: JobRecord) -> str:
        """Resume a job after the queue has given the CPUs back.

        Return why the job stays suspended, which is logged too, or "" when it runs.
        """
        try:
            await self.parts.suspension.resume_job(job.job_id)
        except Refused as error:
            messages.tell("job-not-resumed", f"resume job {job.job_id}: {error}", job=job.job_id, uid=job.user_id)
            if job.job_state == states.RUNNING:
                self.job_suspended(job.job_id, by_owner=self.parts.suspension.is_by_owner(job.job_id))
            return str(error)
        return ""

    # Ends that a user, an admin or the scheduler asks for.

    def cancel(self, job: JobRecord, tasks: str, state: str, reason: str) -> None:
        """End a job, or the named waiting tasks of an array."""
        if job.job_state == states.PENDING:
            self._cancel_waiting(job, tasks, reason)
        else:
            self._doom(job, Doom(state, reason))

    def _cancel_waiting(self, job: JobRecord, tasks: str, reason: str) -> None:
        try:
            gone = self.scheduler.cancel(job, self.now(), tasks)
        except NotAdmitted as error:
            raise Refused("InvalidRequest", str(error), parameter="jobs") from None
        job.state_desc = reason if gone else ""
        if gone:
            self.leases.end(job.job_id)
            self.table.ended(job)
        else:
            self.table.changed(job)
        self.table.commits.soon()
        self.rounds.kick()

    def requeue(self, job: JobRecord, reason: str, hold: str = "") -> None:
        """End the running steps of a batch job, which then waits again. A later daemon knows this too."""
        if job.job_id not in self._dooms:
            job.to_requeue = hold
            self.table.changed_soon(job)
        self._doom(job, Doom(states.REQUEUED, reason, hold))

    def _never(self, job: JobRecord, state: str, reason: str) -> None:
        """End a waiting job without any chance to start."""
        job.job_state, job.state_desc, job.end_time = state, reason, self.now()
        self.leases.end(job.job_id)
        self.table.ended(job)

    def _doom(self, job: JobRecord, doom: Doom) -> None:
        earlier = self._dooms.get(job.job_id)
        if earlier is not None:
            if earlier.state == states.REQUEUED:
                job.to_requeue = None
                self.table.changed(job)
                self._dooms[job.job_id] = doom  # it does not run again
            return
        self._dooms[job.job_id] = doom
        self._begin_end(job)
        if job.job_id in self._starting:
            return  # `_begin_batch` looks for the doom after the start
        if not self._end_steps(job, doom):
            self._without_steps(job)

    def _catch_up(self, job: JobRecord) -> None:
        """End the steps of a job if an end was requested while the first step was being started."""
        doom = self._dooms.get(job.job_id)
        if doom is not None:
            self._end_steps(job, doom)

    def _has_not_begun(self, job: JobRecord) -> bool:
        """Handle a failed start: if an end of the job was requested meanwhile, end or requeue it and return True."""
        doom = self._dooms.pop(job.job_id, None)
        if doom is None:
            return False
        if doom.state == states.REQUEUED:
            self._wait_again(job, doom)
            job.restart_cnt -= 1  # the run that never was does not count
            self._settled(job)
        else:
            job.state_desc = doom.reason
            self._end_for_good(job, doom.state, 1)
        return True

    def is_doomed(self, job_id: int) -> bool:
        """Return True for a job with an end requested before the start."""
        return job_id in self._dooms

    def _end_steps(self, job: JobRecord, doom: Doom) -> bool:
        """End the job's steps. Return False where the job has no steps and nothing is left to wait for."""
        registry = self.parts.registry
        steps = registry.steps_of(job.job_id)
        state = states.CANCELLED if doom.state == states.REQUEUED else doom.state
        for live in steps:
            if live.in_prolog:
                live.cancelled = f"step {live.step} was ended in its prolog: {doom.reason}"
            else:
                self.tasks.begin(_end_step(live, state, doom.reason))
        return bool(steps) or registry.first(job.job_id) is not None

    def _without_steps(self, job: JobRecord) -> None:
        """End a job with granted resources whose client has launched nothing."""
        doom = self._dooms.pop(job.job_id)
        job.state_desc = doom.reason
        self._end_for_good(job, doom.state if doom.state in states.ENDED else states.CANCELLED, 1)

    def _tell_idle(self, job: JobRecord, words: str) -> None:
        """Report an idle job to people by notices, and to the job's steps on standard error."""
        self.parts.notices.idle(job, words)
        for live in self.parts.registry.steps_of(job.job_id):
            if not live.in_prolog:
                self.tasks.begin(live.ask("Say", {"text": f"job {job.job_id}: {words}"}, _ANSWER_SECONDS))

    def _end_idle(self, job: JobRecord, reason: str) -> None:
        messages.tell("job-idle", f"job {job.job_id} is ended: {reason}", job=job.job_id, uid=job.user_id)
        self.cancel(job, "", states.CANCELLED, reason)

    # Ends that happen.

    def _begin_end(self, job: JobRecord) -> None:
        """Begin the termination of a job: tell the scheduler and the select plugin."""
        if job.job_state not in (states.PENDING, states.COMPLETING):
            self.scheduler.ending(job, self.now())
            self._tell_killed(job.job_id)
            self.table.changed(job)

    def _has_ended(self, job: JobRecord, record: Mapping[str, Any]) -> None:
        """Finish a job after all processes and the epilog have ended; `record` is the record of the first step."""
        doom = self._dooms.pop(job.job_id, None)
        if doom is None and job.to_requeue is not None:
            doom = Doom(states.REQUEUED, QUEUED_AGAIN, job.to_requeue)  # an earlier daemon was asked to requeue it
        if job.given_to:
            doom = Doom(states.COMPLETED, given_to(job))
            record = {**record, "exit_status": 0}  # its user wanted that end
        if record.get("prolog") or record.get("epilog"):
            self._drain_after(record)
        if not record.get("prolog") and not record.get("never_began"):
            self.parts.notices.begun(job)  # it may be over before `_begin_batch` goes on
        if job.held_by == BATCH:
            self.parts.spool.remove(job.job_id)
        if record.get("prolog") and job.held_by == BATCH and doom is None:
            doom = Doom(states.REQUEUED, str(record["prolog"]), ADMIN)
        died = bool(record.get("never_began"))
        if (died or record.get("interrupted")) and job.held_by == BATCH and doom is None:
            doom = Doom(states.REQUEUED, str(record.get("reason")))
        if doom is not None and doom.state == states.REQUEUED and job.held_by == BATCH:
            self._again(job, doom, died=died)
            return
        state = str(record.get("state", states.FAILED)) if doom is None else doom.state
        job.state_desc = str(record.get("reason") or "") if doom is None else doom.reason
        if record.get("prolog") and doom is None:
            state = states.CANCELLED
        self._end_for_good(job, state if state in states.ENDED else states.FAILED, int(record.get("exit_status", 1)))

    def _again(self, job: JobRecord, doom: Doom, *, died: bool) -> None:
        """Put the job into the queue again. `died`: the job died before the script began.

        The cause of the death may recur, so the job waits longer each time.
        """
        job.end_time, job.to_requeue = self.now(), None
        self.table.store.put_run(job)
        if not died:
            self.parts.notices.requeued(job)
        self._wait_again(job, doom, died=died)
        self._settled(job)

    def _wait_again(self, job: JobRecord, doom: Doom, *, died: bool = False) -> None:
        now, scheduler = self.now(), self.scheduler
        self._forget_warning(job.job_id)
        job.to_requeue = None
        if died:
            scheduler.begin_failed(job, doom.reason, now)
        else:
            scheduler.requeue(job, now)
            job.state_desc = doom.reason
        if doom.hold:
            scheduler.hold(job, doom.hold, now)

    def _end_for_good(self, job: JobRecord, state: str, exit_code: int) -> None:
        """End the job for good."""
        self.leases.end(job.job_id)
        self._forget_warning(job.job_id)
        words = job.state_desc
        self.scheduler.ended(job, state, exit_code, self.now())
        job.state_desc = words
        self.table.ended(job)
        if job.given_to:
            self._giver_is_free(job)
        self._after_end()

    def _usage_changed(self) -> None:
        """Have the users' usage written within a few seconds."""
        if not self._usage_due:
            self._usage_due = True
            asyncio.get_running_loop().call_later(_USAGE_SECONDS, self._write_usage)

    def _write_hours(self) -> None:
        """Have the users' usage written now and then, even while one long job runs and no job ends."""
        asyncio.get_running_loop().call_later(_HOURS_SECONDS, self._write_hours)
        self._usage_changed()

    def _write_usage(self) -> None:
        self._usage_due = False
        self._put_usage()
        self.table.commits.soon()

    def _put_usage(self) -> None:
        now = self.now()
        self.table.store.put_usage(self.scheduler.usage(now))
        self.table.store.put_week(self.scheduler.week_rows(now))

    def _settled(self, job: JobRecord) -> None:
        self.table.changed_soon(job)
        self._after_end()

    def _after_end(self) -> None:
        self._usage_changed()
        # Not only waiting jobs need a round: a job that was suspended to make room goes on now.
        if self.scheduler.next_time(self.now()) is not None:
            self.rounds.kick()

    # What happens to jobs: called by the part of the daemon that runs their steps.

    def job_ending(self, job: int) -> None:
        """See Watcher."""
        found = self.table.jobs.get(job)
        if found is not None and self._begun:
            self._begin_end(found)

    def step_begins(self, job: int, step: int, ntasks: int) -> str:
        """See Watcher. The select plugin may pick the nodes of the step; its packed data of the step is returned."""
        found = self.table.jobs.get(job)
        if found is None or not self._begun:
            return ""
        record = StepRecord(found, step, num_tasks=ntasks, start_time=self.now())
        self.selection.step_pick_nodes(found, record, 1)
        self._steps.setdefault(job, {})[step] = record
        return self.selection.info.pack_step(record)

    def step_ending(self, job: int, step: int) -> None:
        """See Watcher."""
        if self._begun:
            self._tell_killed(job, step)

    def step_over(self, job: int, step: int) -> None:
        """See Watcher. All processes of the step are gone."""
        if not self._begun:
            return
        found = self.table.jobs.get(job)
        steps = self._steps.get(job, {})
        record = steps.pop(step, None)
        self._killed.discard((job, step))
        if not steps:
            self._steps.pop(job, None)
        if record is None and found is not None:  # an earlier daemon's
            record = StepRecord(found, step)
        if record is not None:
            self.selection.step_finish(record, killing_step=False)

    def _restore_step(self, found: Step) -> None:
        """Restore the select plugin's record of a running step from an earlier daemon."""
        job = self.table.jobs.get(found.job_id)
        if job is None:
            return
        step = StepRecord(job, found.step_id, num_tasks=found.ntasks, start_time=found.submitted)
        step.step_node_bitmap = None if job.node_bitmap is None else job.node_bitmap.copy()
        self.selection.info.unpack_step(step, found.select_packed)
        self._steps.setdefault(found.job_id, {})[found.step_id] = step

    def _tell_killed(self, job_id: int, number: int | None = None) -> None:
        """Tell the select plugin, once for each step, that this step or every step of the job is about to be killed."""
        for step in self._steps.get(job_id, {}).values():
            if number in (None, step.step_id) and (job_id, step.step_id) not in self._killed:
                self._killed.add((job_id, step.step_id))
                self.selection.step_finish(step, killing_step=True)

    def job_over(self, job: int, record: Mapping[str, Any]) -> None:
        """See Watcher."""
        if not self._begun:
            self._early[job] = record
            return
        found = self.table.jobs.get(job)
        # An earlier daemon may have put it into the queue again, and not have removed that run's files.
        if found is not None and not (
            found.job_state == states.PENDING and int(record.get("restart", 0)) < found.restart_cnt
        ):
            self._has_ended(found, record)
            self.departures.over()

    def job_suspended(self, job: int, *, by_owner: bool = False) -> str:
        """See Watcher."""
        found = self.table.jobs.get(job)
        if found is None or found.job_state != states.RUNNING:
            return ""
        why = self.scheduler.suspend(found, self.now(), by_owner=by_owner)
        if why:
            messages.tell("job-keeps-cpus", f"job {job} keeps its CPUs: {why}", job=job, uid=found.user_id)
        self.table.changed_soon(found)
        self.rounds.kick()
        return why

    def job_resuming(self, job: int) -> str:
        """See Watcher."""
        found = self.table.jobs.get(job)
        if found is None:
            return ""
        if found.job_state == states.RUNNING:
            return f"it makes room for job {found.preempted_by}" if found.preempted_by else ""
        why = self.scheduler.resume(found, self.now())
        self.table.changed_soon(found)
        return why

    async def change_time_limit(self, job: JobRecord) -> None:
        """Send the new time limit of a running job to the first step."""
        self._watch_warning(job)
        first = self.parts.registry.first(job.job_id)
        if first is not None and not first.in_prolog:
            first.step.time_limit = job.time_limit
            with contextlib.suppress(OSError):  # a full disk: the row of the job has it
                first.files.rewrite_spec(first.step)
            await first.ask("Limit", {"time_limit": job.time_limit}, _ANSWER_SECONDS)

    # Signals: from users, and as the warning before a job's time limit (sbatch's --signal), once in each run of a job.

    async def send_signal(self, job: JobRecord, number: int, by: int, *, batch: bool) -> bool:
        """Send a signal to the steps of a job. Return True where the signal is meant for any step.

        By Slurm's rule the signal goes to all steps but the script, or to the script alone. The step that holds an
        allocation is no program of its user and receives only SIGKILL.
        """
        steps = [live for live in self.parts.registry.steps_of(job.job_id) if _is_meant(live, number, batch)]
        self.selection.job_signal(job, number)
        for live in steps:
            if not live.in_prolog:
                with contextlib.suppress(Refused):  # it has just ended, or is suspended
                    await live.order("Signal", {"signal": number, "by": by})
        return bool(steps)

    def _watch_warning(self, job: JobRecord) -> None:
        """Set the timer for the job's warning signal: the job has started, or the time limit has changed."""
        self._forget_warning(job.job_id)
        self.parts.notices.watch(job)
        if job.details.signal and job.time_limit and job.is_active and job.warned != job.restart_cnt:
            wait = min(max(self._left_to_warning(job), 0.0), _LONGEST_WAIT)
            self._warnings[job.job_id] = asyncio.get_running_loop().call_later(wait, self._look_at_warning, job)

    def _forget_warning(self, job_id: int) -> None:
        """Remove the timers of a job after the end of a run."""
        self.parts.notices.forget(job_id)
        timer = self._warnings.pop(job_id, None)
        if timer is not None:
            timer.cancel()

    def _left_to_warning(self, job: JobRecord) -> float:
        now = self.now()  # before the job's times are looked at, which it may correct
        end = job.start_time + job.time_limit + job.suspended_seconds
        return end - warning_of(job.details.signal).seconds - now

    def _look_at_warning(self, job: JobRecord) -> None:
        self._warnings.pop(job.job_id, None)
        if self.table.jobs.get(job.job_id) is not job or not job.is_active:
            return
        if self._left_to_warning(job) > 0:
            self._watch_warning(job)
            return
        wanted = warning_of(job.details.signal)
        begun = [live for live in self.parts.registry.steps_of(job.job_id) if not live.in_prolog]
        if job.job_state != states.RUNNING or not begun:
            loop = asyncio.get_running_loop()
            self._warnings[job.job_id] = loop.call_later(_WARN_AGAIN, self._look_at_warning, job)
            return
        job.warned = job.restart_cnt
        self.table.changed_soon(job)
        self.tasks.begin(self.send_signal(job, wanted.number, 0, batch=wanted.batch))

    def _end_warnings(self) -> None:
        """Remove all timers, because the daemon ends. The next daemon sends the remaining signals."""
        for timer in self._warnings.values():
            timer.cancel()
        self._warnings.clear()

    # A job gives all its resources to another job of the same user (`scheduler/expansion.py`). The transfer is one
    # transaction: from then on the target job holds everything and the source job nothing, and the service ends the
    # source job. Its processes may run for a while, with its own limits in its own cgroup. The target's cgroup and the
    # file of its first step grow when those processes are gone, so the processes of both can never use more than what
    # is held for them.

    def expand(self, source: JobRecord) -> None:
        """Give all resources of a job to the job named at submission, and end the giver. Raises Refused."""
        try:
            target = self.scheduler.target_of(source)
            memory = self._joint_memory(source, target)
            self.scheduler.expand(source, self.now())
        except NotAdmitted as error:
            raise _keeps(source, str(error)) from None
        target.joining = (*target.joining, (source.job_id, memory))
        table = self.table
        table.changed(source)
        table.written_from_now_on(target)
        table.commits.now()  # before the end of `source`; a failed write is tried again, and the caller learns of it
        self._end_giver(source)

    def _joint_memory(self, source: JobRecord, target: JobRecord) -> int:
        """Return the memory limit of `target`, in MiB, including the memory of `source`. Raises Refused."""
        theirs, mine = self._first_begun(target, source), self._first_begun(source, source)
        for live in self.parts.registry.steps_of(source.job_id):
            if live is not mine:
                raise _keeps(source, f"its step {live.step} runs")
        memory = target.joining[-1][1] if target.joining else theirs.step.memory
        return memory + mine.step.memory if memory and mine.step.memory else memory

    def _first_begun(self, job: JobRecord, source: JobRecord) -> LiveStep:
        first = self.parts.registry.first(job.job_id)
        runs = first is not None and first.key in self.parts.registry.live
        if first is None or not runs or first.in_prolog or first.files.has_record():
            raise _keeps(source, f"job {job.job_id} has no step that has begun")
        return first

    def _end_giver(self, job: JobRecord) -> None:
        self.cancel(job, "", states.COMPLETED, given_to(job))

    def _go_on_expanding(self) -> None:
        """Finish the expansions begun by an earlier daemon."""
        for job in list(self.table.jobs.values()):
            if job.given_to and job.is_active:
                self._end_giver(job)
            elif job.joining and job.is_active:
                self._begin_growth(job)

    def _giver_is_free(self, source: JobRecord) -> None:
        """Let a target grow: the processes of the giving job, `source`, are gone."""
        target = self.table.jobs.get(source.given_to)
        if target is not None:
            self._begin_growth(target)

    def _begin_growth(self, job: JobRecord) -> None:
        if job.job_id not in self._growing:
            self._growing.add(job.job_id)
            self.tasks.begin(self._grow(job))

    async def _grow(self, job: JobRecord) -> None:
        try:
            while self._may_grow(job):
                if not await self._try_to_grow(job):
                    await asyncio.sleep(_GROW_AGAIN)
        finally:
            self._growing.discard(job.job_id)

    def _may_grow(self, job: JobRecord) -> bool:
        """Return True where the job runs and every giving job is gone."""
        jobs = self.table.jobs
        runs = jobs.get(job.job_id) is job and job.job_state in (states.RUNNING, states.SUSPENDED)
        return runs and bool(job.joining) and not any(number in jobs for number, _ in job.joining)

    async def _try_to_grow(self, job: JobRecord) -> bool:
        """Grow the job's cgroup and the file of the first step. Return False where the caller must try again."""
        try:
            # A later daemon must not see it smaller than its step's file.
            await self.table.commits.durable()
        except NotWritten:
            return False
        first = self.parts.registry.first(job.job_id)
        if not self._may_grow(job):
            return True
        if first is None or job.job_resrcs is None:
            return False  # its first step is about to end, and the job with it
        done, now = job.joining, first.step.memory
        memory = max(done[-1][1], now) if done[-1][1] and now else now  # it may have been changed meanwhile
        mask = share_of(job.job_resrcs, self.selection.nodes).mask
        try:
            await self.parts.growth.grow(first, mask, memory)
        except OSError as error:
            messages.tell(
                "job-does-not-grow", f"job {job.job_id} does not grow yet: {error}", job=job.job_id, uid=job.user_id
            )
            return False
        job.joining = job.joining[len(done) :]
        self.table.changed_soon(job)
        self.parts.further_steps.wake(job.job_id)
        return True

    async def settle_expansion(self, job: JobRecord) -> None:
        """Return when the job can use all given resources, or has ended. Raises Refused where this takes too long."""
        table = self.table
        end = time.monotonic() + self.config.kill_wait + _GROW_PATIENCE
        while job.joining and table.jobs.get(job.job_id) is job and job.is_active:
            if time.monotonic() > end:
                raise Refused("WrongState", f"what job {job.job_id} was given is still in use: job {job.joining[0][0]}")
            await table.change(job.job_id, _GROW_AGAIN)

    # Whether jobs may start on this machine: drained by an admin, or by a failing prolog or epilog.

    def restore_drain(self, node: NodeRecord) -> None:
        """Restore the state left by an earlier daemon, before the daemon answers any call."""
        kept = self.table.store.node()
        if kept is not None and kept[0] == DRAIN:
            _, node.reason, node.reason_uid, node.reason_time = kept
            node.node_state |= NODE_STATE_DRAIN

    async def set_node_state(self, state: str, reason: str, uid: int) -> None:
        """Set the state as an admin asks. Raises Refused."""
        node: NodeRecord = self.selection.nodes[0]
        before = (node.node_state, node.reason, node.reason_uid, node.reason_time)
        self._set_node(state, reason, uid)
        try:
            await self.table.commits.durable()
        except NotWritten as error:
            self.table.store.forget_statement("node")
            node.node_state, node.reason, node.reason_uid, node.reason_time = before
            self.selection.update_node_state(node)
            raise Refused("WrongState", f"node {node.name} is as it was: {error}") from None

    def _drain_after(self, record: Mapping[str, Any]) -> None:
        """Drain the node, if configured, after a failed prolog or epilog. `record` is the record of the job's first
        step.
        """
        costly = (name for name in self.config.drain_on_failure if record.get(name))
        why = next((str(record[name]) for name in costly), "")
        node: NodeRecord = self.selection.nodes[0]
        if why and not node.node_state & NODE_STATE_DRAIN:
            messages.tell("node-drained", f"node {node.name} is drained: {why}", job=record["job"])
            self._set_node(DRAIN, why, 0)
            self.table.commits.soon()

    def _set_node(self, state: str, reason: str, uid: int) -> None:
        node: NodeRecord = self.selection.nodes[0]
        now = self.now()
        if state == DRAIN:
            node.node_state |= NODE_STATE_DRAIN
            node.reason, node.reason_uid, node.reason_time = reason, uid, now
        else:
            node.node_state &= ~NODE_STATE_DRAIN
            node.reason, node.reason_uid, node.reason_time = "", 0, 0.0
        self.selection.update_node_state(node)
        self.table.store.put_node(state, reason, uid, now)
        self.scheduler.changed()
        self.rounds.kick()

    def devices_away(self, away: Mapping[str, str]) -> None:
        """Give no job these devices from now on; `away` has the reasons by key."""
        self.selection.set_devices_away(0, away)
        self.scheduler.changed()
        self.rounds.kick()

    # The daemon's life.

    async def settle(self, to_end: TimeToEnd) -> None:
        """Stop the queue before the daemon ends: start nothing more, and write all state."""
        if not self._begun:
            return
        self.rounds.end()
        self.leases.end_all()
        self._end_warnings()
        self.parts.idle.stop()
        await self.tasks.finish(to_end.half())  # `NodeJobs.settle` waits for prologs and epilogs
        await self.parts.notices.settle()
        self._put_usage()
        with contextlib.suppress(NotWritten):  # the next daemon has the last state on the disk, and the steps' files
            await self.table.commits.durable()
        self.selection.save(self.config.state_dir)
        self.selection.end()


async def _end_step(live: LiveStep, state: str, reason: str) -> None:
    with contextlib.suppress(Refused):  # it has just ended
        await live.order("End", {"state": state, "reason": reason})


def given_to(job: JobRecord) -> str:
    """Return the end reason of a job that has given its resources to another job."""
    return f"job {job.given_to} was given what it held"


def _keeps(job: JobRecord, why: str) -> Refused:
    return Refused("WrongState", f"job {job.job_id} keeps what it holds: {why}")


def _is_meant(live: LiveStep, number: int, batch: bool) -> bool:
    step = live.step.step_id
    if number == KILL and not batch:
        return True
    return step == SCRIPT if batch else step not in (SCRIPT, EXTERN)
