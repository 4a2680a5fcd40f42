"""Jobs giving all resources to another job of the same user (`scheduler/expansion.py`): the work of the service.

The transfer is one transaction: from then on the target job holds everything and the source job nothing, and the
service ends the source job. The processes of the source may run for a while, with its own limits in its own cgroup. The
target's cgroup and the file of its first step grow when those processes are gone, so the processes of both can never
use more than what is held for them. Used only from the event loop.
"""

import asyncio
import time

from nodectl import messages
from nodectl.model.wire.dispatch import Refused
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.selection.modes import RUNNING, SUSPENDED
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.admission.share import share_of
from nodectl.service.daemon.controller.commits import NotWritten
from nodectl.service.daemon.controller.core import Core
from nodectl.service.daemon.controller.ends import COMPLETED, Ends, given_to
from nodectl.service.daemon.steps.live import LiveStep

_AGAIN = 5.0  # seconds
_PATIENCE = 60.0  # beyond the time that processes get to end


class Expansions:
    """The expansions of the node's jobs."""

    def __init__(self, core: Core, ends: Ends) -> None:
        self._core = core
        self._ends = ends
        self._growing: set[int] = set()
        ends.given_is_free = self._is_free

    def expand(self, source: JobRecord) -> None:
        """Give all resources of a job to the job named at submission, and end the giver. Raises Refused."""
        try:
            target = self._core.scheduler.target_of(source)
            memory = self._memory(source, target)
            self._core.scheduler.expand(source, time.time())
        except NotAdmitted as error:
            raise _refused(source, str(error)) from None
        target.joining = (*target.joining, (source.job_id, memory))
        table = self._core.table
        table.changed(source)
        table.written_from_now_on(target)
        table.commits.now()  # before the end of `source`; a failed write is tried again, and the caller learns of it
        self._end(source)

    def _memory(self, source: JobRecord, target: JobRecord) -> int:
        """Return the memory limit of `target`, in MiB, including the memory of `source`. Raises Refused."""
        theirs, mine = self._first(target, source), self._first(source, source)
        for live in self._core.parts.registry.steps_of(source.job_id):
            if live is not mine:
                raise _refused(source, f"its step {live.step} runs")
        memory = target.joining[-1][1] if target.joining else theirs.step.memory
        return memory + mine.step.memory if memory and mine.step.memory else memory

    def _first(self, job: JobRecord, source: JobRecord) -> LiveStep:
        first = self._core.parts.registry.first(job.job_id)
        runs = first is not None and first.key in self._core.parts.registry.live
        if first is None or not runs or first.in_prolog or first.files.has_record():
            raise _refused(source, f"job {job.job_id} has no step that has begun")
        return first

    def _end(self, job: JobRecord) -> None:
        self._ends.cancel(job, "", COMPLETED, given_to(job))

    def go_on(self) -> None:
        """Finish the expansions begun by an earlier daemon."""
        for job in list(self._core.table.jobs.values()):
            if job.given_to and job.is_active:
                self._end(job)
            elif job.joining and job.is_active:
                self._begin_growth(job)

    def _is_free(self, source: JobRecord) -> None:
        """Let a target grow: the processes of the giving job, `source`, are gone."""
        target = self._core.table.jobs.get(source.given_to)
        if target is not None:
            self._begin_growth(target)

    def _begin_growth(self, job: JobRecord) -> None:
        if job.job_id not in self._growing:
            self._growing.add(job.job_id)
            self._core.tasks.begin(self._grow(job))

    async def _grow(self, job: JobRecord) -> None:
        try:
            while self._may_grow(job):
                if not await self._try_to_grow(job):
                    await asyncio.sleep(_AGAIN)
        finally:
            self._growing.discard(job.job_id)

    def _may_grow(self, job: JobRecord) -> bool:
        """Return True where the job runs and every giving job is gone."""
        jobs = self._core.table.jobs
        runs = jobs.get(job.job_id) is job and job.job_state in (RUNNING, SUSPENDED)
        return runs and bool(job.joining) and not any(number in jobs for number, _ in job.joining)

    async def _try_to_grow(self, job: JobRecord) -> bool:
        """Grow the job's cgroup and the file of the first step. Return False where the caller must try again."""
        try:
            await self._core.table.commits.durable()  # a later daemon must not see it smaller than its step's file
        except NotWritten:
            return False
        first = self._core.parts.registry.first(job.job_id)
        if not self._may_grow(job):
            return True
        if first is None or job.job_resrcs is None:
            return False  # its first step is about to end, and the job with it
        done, now = job.joining, first.step.memory
        memory = max(done[-1][1], now) if done[-1][1] and now else now  # it may have been changed meanwhile
        mask = share_of(job.job_resrcs, self._core.selection.nodes).mask
        try:
            await self._core.parts.growth.grow(first, mask, memory)
        except OSError as error:
            messages.tell(
                "job-does-not-grow", f"job {job.job_id} does not grow yet: {error}", job=job.job_id, uid=job.user_id
            )
            return False
        job.joining = job.joining[len(done) :]
        self._core.table.changed(job)
        self._core.table.commits.soon()
        self._core.parts.further_steps.wake(job.job_id)
        return True

    async def settle(self, job: JobRecord) -> None:
        """Return when the job can use all given resources, or has ended. Raises Refused where this takes too long."""
        table = self._core.table
        end = time.monotonic() + self._core.config.kill_wait + _PATIENCE
        while job.joining and table.jobs.get(job.job_id) is job and job.is_active:
            if time.monotonic() > end:
                raise Refused("WrongState", f"what job {job.job_id} was given is still in use: job {job.joining[0][0]}")
            await table.change(job.job_id, _AGAIN)


def _refused(job: JobRecord, why: str) -> Refused:
    return Refused("WrongState", f"job {job.job_id} keeps what it holds: {why}")
