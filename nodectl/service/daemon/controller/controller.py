"""The controller of this node's jobs: accepts jobs, carries out the scheduler's decisions and records the results.

The daemon has one such object and uses it only from its event loop. The state of a job on the disk and its processes
agree whenever the daemon may die: a job is RUNNING on the disk before any part of it begins, and has ended there
together with its last step. Other modules of this package do the parts: `table.py` knows the jobs, `rounds.py` drives
the scheduler, `starts.py` begins batch jobs, `ends.py` ends jobs, `restore.py` takes over the jobs of an earlier
daemon.
"""

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from nodectl import messages
from nodectl.model.config import Config
from nodectl.model.wire.dispatch import Refused, subject
from nodectl.scheduler.decisions import REQUEUE, SUSPEND, Decision, End, NotAdmitted, Preempt, Resume, Start
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.host import Selection
from nodectl.selection.modes import PENDING, RUNNING, SUSPENDED
from nodectl.selection.records import BATCH, JobRecord
from nodectl.service.daemon.controller.commits import NotWritten
from nodectl.service.daemon.controller.core import Core
from nodectl.service.daemon.controller.departures import Departures
from nodectl.service.daemon.controller.drain import Drain
from nodectl.service.daemon.controller.ends import Ends
from nodectl.service.daemon.controller.expansions import Expansions
from nodectl.service.daemon.controller.job_signals import JobSignals
from nodectl.service.daemon.controller.leases import Leases
from nodectl.service.daemon.controller.parts import Parts
from nodectl.service.daemon.controller.rounds import Rounds
from nodectl.service.daemon.controller.starts import CannotBegin
from nodectl.service.daemon.controller.steps_told import StepsTold
from nodectl.service.daemon.controller.table import JobTable
from nodectl.service.daemon.history.batch_text import PackedText
from nodectl.service.daemon.jobs.background_tasks import TimeToEnd
from nodectl.service.daemon.jobs.watcher import Watcher

_ANSWER_SECONDS = 5.0


class Controller(Core, Watcher):
    """The controller of the node, and the Watcher of the running jobs."""

    def __init__(self, config: Config, table: JobTable, parts: Parts) -> None:
        super().__init__(config, table, parts, Leases(config.interactive_lease, self._client_gone))
        self.departures = Departures(parts.registry, parts.further_steps)
        self.drain = Drain(self)
        self._steps = StepsTold(self)
        self.ends = Ends(self, self.drain, self._steps)
        self.expansions = Expansions(self, self.ends)
        self.signals = JobSignals(self)
        self.ends.run_is_over = self.signals.forget
        parts.starts.is_over = self.ends.is_doomed
        self._early: dict[int, Mapping[str, Any]] = {}  # ends of jobs noticed before the queue started
        self._stopping: set[int] = set()  # jobs being suspended to make room
        self._begun = False

    def begin(self, scheduler: Scheduler, selection: Selection) -> None:
        """Start the queue, with the jobs left by an earlier daemon."""
        self.scheduler, self.selection = scheduler, selection
        self.rounds = Rounds(scheduler, self._carry_out, self.table.tell_all)
        self._begun = True
        for live in self.parts.registry.live.values():
            self._steps.go_on(live.step)
        early, self._early = self._early, {}
        for job_id, record in early.items():
            self.job_over(job_id, record)
        for job in self.table.jobs.values():
            self.signals.watch(job)
            if job.job_state in (RUNNING, SUSPENDED):
                self.tasks.begin(self._take_over(job))
        self.expansions.go_on()
        self.table.commits.soon()
        self.rounds.kick()

    def has_early(self, job_id: int) -> bool:
        """Return True for a job whose end the daemon noticed before the queue started."""
        return job_id in self._early

    # Jobs come in.

    async def submit(self, job: JobRecord, batch: PackedText | None = None) -> None:
        """Add a numbered job to the queue. Return once the job is on the disk. Raises Refused."""
        try:
            self.scheduler.submit(job, time.time())
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
        if self.scheduler.jobs.get(job.job_id) is job and job.job_state == PENDING:
            self.scheduler.cancel(job, time.time())
            self.table.withdraw(job)

    def try_start(self, job: JobRecord) -> str:
        """Start a job without a row in the store: while the job runs, the file of the first step takes the place of the
        row.

        Return why the job has to wait, or "" when it is RUNNING. Raises Refused for a job that can never start.
        """
        with self.selection.together:
            try:
                why = self.scheduler.try_start(job, time.time())
            except NotAdmitted as error:
                raise Refused("LaunchRefused", str(error), exit_status=1, **subject(error.subject)) from None
            if not why and not self.selection.job_ready(job):
                self.scheduler.ended(job, "CANCELLED", 1, time.time())
                return "its nodes are not ready"
        if not why:
            self.table.add_unwritten(job)
        return why

    def take_granted(self, job_id: int, uid: int, caller: int) -> JobRecord:
        """Return a job with granted resources whose client now launches the first step. Raises Refused."""
        job = self.table.jobs.get(job_id)
        if job is None or job.user_id != uid or caller not in (0, uid):
            raise Refused("NoSuchJob", f"no job {job_id} waits for a launch of yours", subject="unknown")
        if job.job_state != RUNNING or job_id not in self.leases:  # or another call is launching it
            raise Refused("WrongState", f"job {job_id} is {job.job_state}: it does not wait for its first step")
        self.leases.end(job_id)
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
            self.scheduler.ended(job, "FAILED", 1, time.time())
            self.table.withdraw(job)
        else:
            job.state_desc = why
            self.ends.over(job, "FAILED", 1)

    def _client_gone(self, job_id: int) -> None:
        job = self.table.jobs.get(job_id)
        if job is not None:
            self.ends.cancel(job, "", "CANCELLED", "no client waits for it any more")

    # What the scheduler decides.

    def _carry_out(self, decisions: list[Decision]) -> None:
        starts = [one for one in decisions if isinstance(one, Start)]
        for start in starts:
            self._changed(start)
            if start.job.held_by == BATCH:
                self.ends.starting.add(start.job.job_id)  # its end may be wanted before `_begin_batch` is run
        for one in decisions:
            if isinstance(one, End):
                self.ends.never(one.job, one.state, one.reason)
            elif isinstance(one, Preempt):
                self._preempt(one)
            elif isinstance(one, Resume):
                self.table.changed(one.job)
                self.tasks.begin(self.go_on(one.job))
        why = self.table.commits.now() if self.table.store.is_behind else ""
        for start in starts:
            if self.table.jobs.get(start.job.job_id) is not start.job:
                continue  # it was preempted in the same round
            self.signals.watch(start.job)
            if why:
                self._not_written(start, why)
            elif start.job.held_by == BATCH:
                self.tasks.begin(self._begin_batch(start.job))
            elif not self.selection.job_ready(start.job):
                self.tasks.begin(self._await_ready(start.job))

    def _not_written(self, start: Start, why: str) -> None:
        self.ends.starting.discard(start.job.job_id)
        if not self.ends.has_not_begun(start.job):
            self._begin_failed(start.job, why)
            self._changed(start)

    def _begin_failed(self, job: JobRecord, why: str) -> None:
        """Put the job back into the queue, without counting the failed run."""
        self.scheduler.begin_failed(job, why, time.time())
        job.restart_cnt -= 1

    def _changed(self, start: Start) -> None:
        self.table.changed(start.job)
        if start.array is not None:
            self.table.changed(start.array)

    async def _begin_batch(self, job: JobRecord) -> None:
        """Begin the first step of a batch job, already added to `ends.starting` by `_carry_out`."""
        try:
            await self.parts.starts.begin(self.selection, job)
        except CannotBegin as error:
            self._not_begun(job, str(error), for_good=error.for_good)
        except Exception as error:
            self._not_begun(job, f"internal error: {error!r}", for_good=True)
            raise
        finally:
            self.ends.starting.discard(job.job_id)
        self.ends.catch_up(job)

    def _not_begun(self, job: JobRecord, why: str, *, for_good: bool) -> None:
        if self.ends.has_not_begun(job):
            return
        if for_good:
            messages.tell("job-cannot-begin", f"job {job.job_id} cannot begin: {why}", job=job.job_id, uid=job.user_id)
            job.state_desc = why
            self.ends.over(job, "FAILED", 1)
        else:
            self._begin_failed(job, why)
            self.table.changed(job)
            self.table.commits.soon()
            self.rounds.kick()

    async def _await_ready(self, job: JobRecord) -> None:
        if not await self.parts.starts.ready(self.selection, job) and job.job_state == RUNNING:
            self._not_begun(job, "its nodes are not ready", for_good=False)

    def _preempt(self, one: Preempt) -> None:
        job = one.job
        why = f"preempted by job {one.for_job.job_id}"
        job.preempted_by = one.for_job.job_id
        if one.how == SUSPEND:
            self.table.changed(job)
            self._make_stop(job)
        elif one.how == REQUEUE:
            self.ends.requeue(job, why)
        else:
            self.ends.cancel(job, "", "PREEMPTED", why)

    def _make_stop(self, job: JobRecord) -> None:
        if job.job_id not in self._stopping:  # else it is being suspended for another job, which has left the queue
            self._stopping.add(job.job_id)
            self.tasks.begin(self._stop(job))

    async def _stop(self, job: JobRecord) -> None:
        """Suspend a job to make room. If the job still runs afterwards, the scheduler tries other jobs."""
        try:
            await self.parts.suspension.suspend_job(job.job_id)
        except Refused as error:
            if job.job_state == RUNNING:  # else it has ended, or stands still already
                words = f"suspend job {job.job_id}: {error}"
                messages.tell("job-not-suspended", words, job=job.job_id, uid=job.user_id)
        finally:
            self._stopping.discard(job.job_id)
            if job.job_state == RUNNING:
                self.scheduler.stays(job, time.time())
                self.table.changed(job)
                self.table.commits.soon()
                self.rounds.kick()

    async def _take_over(self, job: JobRecord) -> None:
        """Take over a job from an earlier daemon, which may have been suspending the job."""
        await self.parts.suspension.take_over(job.job_id)
        if job.job_state == RUNNING and job.preempted_by:
            self._make_stop(job)

    async def go_on(self, job: JobRecord) -> str:
        """Resume a job after the queue has given the CPUs back.

        Return why the job stays suspended, which is logged too, or "" when it runs.
        """
        try:
            await self.parts.suspension.resume_job(job.job_id)
        except Refused as error:
            messages.tell("job-not-resumed", f"resume job {job.job_id}: {error}", job=job.job_id, uid=job.user_id)
            if job.job_state == RUNNING:
                self.job_suspended(job.job_id, by_owner=self.parts.suspension.is_by_owner(job.job_id))
            return str(error)
        return ""

    # What happens to jobs: called by the part of the daemon that runs their steps.

    def job_ending(self, job: int) -> None:
        """See Watcher."""
        found = self.table.jobs.get(job)
        if found is not None and self._begun:
            self.ends.begins(found)

    def step_begins(self, job: int, step: int, ntasks: int) -> str:
        """See Watcher."""
        return self._steps.begins(job, step, ntasks) if self._begun else ""

    def step_ending(self, job: int, step: int) -> None:
        """See Watcher."""
        if self._begun:
            self._steps.killed(job, step)

    def step_over(self, job: int, step: int) -> None:
        """See Watcher."""
        if self._begun:
            self._steps.over(job, step)

    def job_over(self, job: int, record: Mapping[str, Any]) -> None:
        """See Watcher."""
        if not self._begun:
            self._early[job] = record
            return
        found = self.table.jobs.get(job)
        # An earlier daemon may have put it into the queue again, and not have removed that run's files.
        if found is not None and not (found.job_state == PENDING and int(record.get("restart", 0)) < found.restart_cnt):
            self.ends.has_ended(found, record)
            self.departures.over()

    def job_suspended(self, job: int, *, by_owner: bool = False) -> str:
        """See Watcher."""
        found = self.table.jobs.get(job)
        if found is None or found.job_state != RUNNING:
            return ""
        why = self.scheduler.suspend(found, time.time(), by_owner=by_owner)
        if why:
            messages.tell("job-keeps-cpus", f"job {job} keeps its CPUs: {why}", job=job, uid=found.user_id)
        self.table.changed(found)
        self.table.commits.soon()
        self.rounds.kick()
        return why

    def job_resuming(self, job: int) -> str:
        """See Watcher."""
        found = self.table.jobs.get(job)
        if found is None:
            return ""
        if found.job_state == RUNNING:
            return f"it makes room for job {found.preempted_by}" if found.preempted_by else ""
        why = self.scheduler.resume(found, time.time())
        self.table.changed(found)
        self.table.commits.soon()
        return why

    async def change_time_limit(self, job: JobRecord) -> None:
        """Send the new time limit of a running job to the first step."""
        self.signals.watch(job)
        first = self.parts.registry.first(job.job_id)
        if first is not None and not first.in_prolog:
            first.step.time_limit = job.time_limit
            with contextlib.suppress(OSError):  # a full disk: the row of the job has it
                first.files.rewrite_spec(first.step)
            await first.ask("Limit", {"time_limit": job.time_limit}, _ANSWER_SECONDS)

    # The daemon's life.

    async def settle(self, to_end: TimeToEnd) -> None:
        """Stop the queue before the daemon ends: start nothing more, and write all state."""
        if not self._begun:
            return
        self.rounds.end()
        self.leases.end_all()
        self.signals.end()
        await self.tasks.finish(to_end.half())  # `NodeJobs.settle` waits for prologs and epilogs
        self.table.store.put_usage(self.scheduler.usage(time.time()))
        with contextlib.suppress(NotWritten):  # the next daemon finds what is on the disk, and the files of steps
            await self.table.commits.durable()
        self.selection.save(self.config.state_dir)
        self.selection.end()
