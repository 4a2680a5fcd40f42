"""Cancel, Hold, ReleaseJobs, Requeue, UpdateJob, SuspendJob and ResumeJob: the calls which change jobs of the queue.

Owners may end, hold and change their own jobs; admins may do so with all jobs. Each answer comes when the change is on
the disk.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from nodectl.model.fields import YEAR
from nodectl.model.states import CANCELLED, COMPLETING, PENDING, RUNNING, SUSPENDED
from nodectl.model.wire.dispatch import Call, Refused, invalid, subject
from nodectl.model.wire.names import QUEUED_AGAIN
from nodectl.model.wire.shape import Optional, an_object, boolean, integer, text
from nodectl.scheduler import job_array
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.selection.records import BATCH, JobRecord
from nodectl.service.daemon.admission.slices import Work
from nodectl.service.daemon.controller.commits import NotWritten
from nodectl.service.daemon.controller.job_names import name_of
from nodectl.service.daemon.controller.job_request import ADMIN, USER
from nodectl.service.daemon.controller.options import JOB_OPTIONS, ONE_JOB, SCRIPT, WORDS
from nodectl.service.daemon.methods.job_calls import JobCalls
from nodectl.service.daemon.methods.rewrite import check_unchanged, check_waits, rewritten
from nodectl.service.daemon.methods.show_queue import Matching
from nodectl.service.request.launch import REQUEST

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

CANCEL: "Shape" = {
    **{name: Optional(WORDS) for name in ("jobs", "users", "names", "states")},
    "signal": Optional(integer(1, 64)),
    "batch": Optional(boolean),
}
JOBS: "Shape" = {"jobs": WORDS}
REQUEUE: "Shape" = {"jobs": WORDS, "hold": Optional(boolean)}
_OF_A_JOB = ("priority", "nice", "begin", "deadline", "dependency", "qos", "reservation", "requeue", "comment")
UPDATE_JOB: "Shape" = {
    **ONE_JOB,
    "time_limit": Optional(integer(0, YEAR)),
    **{name: JOB_OPTIONS[name] for name in _OF_A_JOB},
    **{name: REQUEST[name] for name in ("name", "mem")},
    "array_limit": Optional(integer(0, 2**31)),
    "num_nodes": Optional(text(8)),
    "request": Optional(an_object),
    "script": Optional(SCRIPT),
}
_REWRITES = frozenset({"request", "script"})
_OURS = ("job", "requeue", "array_limit", "num_nodes", *_REWRITES)
"""What the scheduler does not change."""
_MOST_APART = 1000


class JobControl:
    """The job control methods of the node."""

    def __init__(self, calls: JobCalls) -> None:
        self._calls = calls
        self._controller = calls.controller

    async def cancel(self, call: Call) -> Mapping[str, object]:
        """End or signal jobs."""
        given = call.parameters
        if not any(name in given for name in ("jobs", "users", "names", "states")):
            raise invalid("jobs", "say which jobs: by number, user, name or state")
        signal, by = given.get("signal"), call.peer.uid
        done = []
        async for job, tasks in self._each_meant(call):
            if signal is not None:
                if not await self._controller.send_signal(job, signal, by, batch=bool(given.get("batch"))):
                    continue
            elif job.job_state == COMPLETING:
                continue
            else:
                self._check_growth(call, job, tasks)
                self._controller.cancel(job, tasks, CANCELLED, f"cancelled by uid {by}")
            done.append(f"{job.job_id}_[{tasks}]" if tasks else name_of(job))
        await self._written()
        return {"cancelled": done}

    async def _each_meant(self, call: Call) -> AsyncIterator[tuple[JobRecord, str]]:
        """Yield the jobs meant by the call, then any array tasks split off these jobs meanwhile."""
        matches, work = Matching(call.parameters), self._calls.work()
        found = []
        for job, tasks in await self._meant(call, work):
            if matches(job):
                found.append((job, tasks))
            if work.is_due():
                await work.rest()
        arrays = {job.array_job_id for job, tasks in found if job.array_tasks and not tasks}
        known = {job.job_id for job, _ in found}
        async for one in self._in_turns(found):
            yield one
        if arrays:
            late = [job for job in self._controller.table.jobs.values() if job.array_job_id in arrays]
            async for one in self._in_turns([(job, "") for job in late if job.job_id not in known]):
                yield one

    async def _meant(self, call: Call, work: Work) -> Iterable[tuple[JobRecord, str]]:
        """Return the named jobs, or else all jobs the caller may change.

        Raises Refused where the call names another user who has jobs.
        """
        if "jobs" in call.parameters:
            return await self._calls.several(call, call.parameters["jobs"], work)
        may_see, matches = self._calls.permissions.may_see, Matching(call.parameters)
        mine: list[tuple[JobRecord, str]] = []
        for job in self._controller.table.jobs.values():
            if may_see(call.peer, job.user_id):
                mine.append((job, ""))
            elif "users" in call.parameters and not self._calls.hides_others and matches(job):
                raise Refused("NotPermitted", f"job {name_of(job)} is not yours")
        return mine

    async def hold(self, call: Call) -> Mapping[str, object]:
        """Keep waiting jobs from starting."""
        scheduler, now = self._controller.scheduler, time.time()
        with self._looked_at_even_if_refused():
            async for job, _ in self._in_turns(await self._apart(await self._pending(call))):
                if job.job_state != PENDING:
                    continue  # it has been started meanwhile
                who = USER if job.user_id == call.peer.uid else ADMIN
                with contextlib.suppress(NotAdmitted):  # the state was checked above
                    scheduler.hold(job, who, now)
                self._controller.table.changed(job)
        return await self._done()

    async def release(self, call: Call) -> Mapping[str, object]:
        """Release held jobs, which then wait in the queue."""
        is_admin, now = self._calls.is_admin(call), time.time()
        with self._looked_at_even_if_refused():
            async for job, _ in self._in_turns(await self._apart(await self._pending(call))):
                if job.job_state != PENDING:
                    continue
                try:
                    self._controller.scheduler.release(job, now, is_admin=is_admin)
                except NotAdmitted as error:
                    raise Refused("NotPermitted", str(error)) from None
                self._controller.table.changed(job)
        return await self._done()

    async def _in_turns(self, found: list[tuple[JobRecord, str]]) -> AsyncIterator[tuple[JobRecord, str]]:
        """Yield the jobs still in the queue, and let the event loop serve pending calls in between."""
        jobs, work = self._controller.table.jobs, self._calls.work()
        for job, tasks in found:
            if jobs.get(job.job_id) is job:
                yield job, tasks
            await self._rest(work)

    async def _rest(self, work: Work) -> None:
        """Write and let the event loop serve pending calls, where a pause is due or much is to be written."""
        if self._controller.table.store.has_much or work.is_due():
            with contextlib.suppress(NotWritten):  # it is tried again
                await self._controller.table.commits.durable()
            await work.rest()

    def _check_growth(self, call: Call, job: JobRecord, tasks: str = "all") -> None:
        """Raise Refused where a change may need more bytes for a user already over the limit.

        Cancelling a whole job needs none, so it is always allowed. Cancelling a part of an array may need more bytes
        for the rest. Admins are not checked.
        """
        if tasks and not self._calls.is_admin(call):
            self._controller.table.check_bytes(job.user_id)

    async def _pending(self, call: Call) -> list[tuple[JobRecord, str]]:
        """Return the waiting jobs of the call. Raises Refused where a job does not wait; some tasks of an array may
        run.
        """
        found = await self._calls.several(call, call.parameters["jobs"], self._calls.work())
        waiting = {job.array_job_id for job, _ in found if job.job_state == PENDING and job.array_job_id}
        for job, _ in found:
            if job.job_state != PENDING and job.array_job_id not in waiting:
                raise Refused("WrongState", f"job {name_of(job)} is {job.job_state}: it does not wait any more")
        return [(job, tasks) for job, tasks in found if job.job_state == PENDING]

    async def _apart(self, found: Iterable[tuple[JobRecord, str]]) -> list[tuple[JobRecord, str]]:
        """Return the jobs, with each selected task of a waiting array split off as a separate job. Raises Refused."""
        table, work, apart = self._controller.table, self._calls.work(), []
        for job, tasks in found:
            meant = list(job_array.indices(self._part(job, tasks)))
            if not meant:
                apart.append((job, ""))
            if work.is_due():
                await work.rest()
            for index in meant:
                if table.jobs.get(job.job_id) is not job or not self._waits(job, index):
                    continue  # it has been started meanwhile
                table.check_bytes(job.user_id)
                try:
                    task = self._controller.scheduler.set_apart(job, index, time.time())
                except NotAdmitted as error:
                    raise Refused("WrongState", f"task {index} of job {job.array_job_id}: {error}") from None
                table.changed(task)
                table.changed(job)
                apart.append((task, ""))
                await self._rest(work)
        return apart

    def _waits(self, job: JobRecord, index: int) -> bool:
        return bool(job.array_tasks) and job_array.has(self._controller.scheduler.waiting_tasks(job), index)

    def _part(self, job: JobRecord, tasks: str) -> job_array.Tasks:
        """Return the selected tasks of a waiting array, none where all tasks are selected. Raises Refused."""
        if not tasks or not job.array_tasks:
            return []
        waiting = self._controller.scheduler.waiting_tasks(job)
        meant = job_array.common(waiting, job_array.tasks_of(tasks))
        if job_array.size(meant) == job_array.size(waiting):
            return []
        if job_array.size(meant) > _MOST_APART:
            words = f"{_MOST_APART} tasks are the most that become jobs of their own at a time"
            raise Refused("WrongState", f"{name_of(job)}: {words}")
        return meant

    def _must_be_whole(self, found: Iterable[tuple[JobRecord, str]], what: str = "array_limit is") -> None:
        """Raise Refused where only some of the waiting tasks of an array are selected."""
        for job, tasks in found:
            if self._part(job, tasks):
                words = f"{name_of(job)} is job {job.array_job_id}"
                raise Refused("WrongState", f"{what} the whole array's: {words}")

    async def requeue(self, call: Call) -> Mapping[str, object]:
        """Put running batch jobs into the queue again."""
        work, jobs = self._calls.work(), self._controller.table.jobs
        found = await self._calls.several(call, call.parameters["jobs"], work)
        hold = (ADMIN if self._calls.is_admin(call) else USER) if call.parameters.get("hold") else ""
        for job, _ in found:
            if job.held_by != BATCH or not job.details.requeue:
                raise Refused("WrongState", f"job {name_of(job)} cannot be started a second time")
            if job.job_state not in (RUNNING, SUSPENDED):
                raise Refused("WrongState", f"job {name_of(job)} is {job.job_state}: it does not run")
        for job, _ in found:
            if jobs.get(job.job_id) is job and job.job_state in (RUNNING, SUSPENDED):
                self._controller.requeue(job, f"{QUEUED_AGAIN} by uid {call.peer.uid}", hold)
            await self._rest(work)
        return await self._done()

    async def update(self, call: Call) -> Mapping[str, object]:
        """Change a job."""
        if "num_nodes" in call.parameters:
            return await self._resize(call)
        changes: dict[str, object] = {name: value for name, value in call.parameters.items() if name not in _OURS}
        await self._calls.learn(call, str(call.parameters.get("dependency", "")))
        is_admin, now = self._calls.is_admin(call), time.time()
        name = str(call.parameters["job"])
        found = await self._calls.several(call, [name], self._calls.work())
        if "array_limit" in call.parameters:
            self._must_be_whole(found)
            if any(not job.array_job_id for job, _ in found):
                raise Refused("WrongState", f"array_limit: job {name} is no array")
        new, is_done = None, False
        if _REWRITES & call.parameters.keys():
            found = self._rewritable(found)
            new = await rewritten(self._calls, call, found[0][0])
            changes["demand"] = new.details
        with self._looked_at_even_if_refused():
            async for job, _ in self._in_turns(await self._apart(found)):
                self._check_growth(call, job)
                if new is not None:  # nothing comes between this check and the change
                    check_unchanged(self._controller.table, job, new)
                try:
                    self._controller.scheduler.update(job, changes, now, is_admin=is_admin)
                except NotAdmitted as error:
                    raise Refused(
                        "WrongState", f"job {name_of(job)} is as it was: {error}", **subject(error.subject)
                    ) from None
                if new is not None:
                    self._controller.table.rewrite(job, new.text)
                job.details.requeue = bool(call.parameters.get("requeue", job.details.requeue))
                job.array_limit = int(str(call.parameters.get("array_limit", job.array_limit)))
                self._controller.table.changed(job)
                is_done = True
                if "time_limit" in changes and job.job_state in (RUNNING, SUSPENDED):
                    await self._controller.change_time_limit(job)
            if not is_done:  # it has ended, or its tasks have begun, meanwhile
                raise Refused("WrongState", f"job {name} has begun or ended meanwhile: it is as it was")
        return await self._done()

    def _rewritable(self, found: list[tuple[JobRecord, str]]) -> list[tuple[JobRecord, str]]:
        """Return the named job: one, or an array without tasks that are jobs of their own. Raises Refused."""
        self._must_be_whole(found, "script and request are")
        for job, _ in found:
            check_waits(self._controller.table, job)
        return found[:1]

    async def _resize(self, call: Call) -> Mapping[str, object]:
        """Expand a job as with scontrol: two calls change the number of nodes of both jobs.

        The number 0 gives all resources of the job to the job that it was submitted to expand. The number ALL waits
        until the expanded job can use them.
        """
        wanted = str(call.parameters["num_nodes"]).upper()
        if call.parameters.keys() != {"job", "num_nodes"}:
            raise invalid("num_nodes", "is changed alone")
        if wanted not in ("0", "ALL"):
            raise invalid("num_nodes", "0 gives all that the job holds to the one that it expands, ALL takes it")
        job = await self._calls.one(call, str(call.parameters["job"]))
        if job.job_state not in (RUNNING, SUSPENDED):
            raise Refused("WrongState", f"job {name_of(job)} is {job.job_state}: it does not run")
        if wanted == "ALL":
            await self._controller.settle_expansion(job)
            return {}
        self._controller.expand(job)
        return await self._done()

    async def suspend(self, call: Call) -> Mapping[str, object]:
        """Suspend a running job."""
        job = await self._calls.one(call, str(call.parameters["job"]))
        if job.job_state != RUNNING:
            words = "is suspended already" if job.job_state == SUSPENDED else f"is {job.job_state}: it does not run"
            raise Refused("WrongState", f"job {name_of(job)} {words}")
        await self._controller.parts.suspension.suspend_job(job.job_id, by_owner=not self._calls.is_admin(call))
        return await self._done()

    async def resume(self, call: Call) -> Mapping[str, object]:
        """Resume a suspended job."""
        job = await self._calls.one(call, str(call.parameters["job"]))
        stopped = job.job_state == RUNNING and self._controller.parts.suspension.has_stopped(job.job_id)
        if job.job_state != SUSPENDED and not stopped:
            raise Refused("WrongState", f"job {name_of(job)} is not suspended: it is {job.job_state}")
        if why := self._controller.job_resuming(job.job_id):
            raise Refused("WrongState", f"job {name_of(job)} stays suspended: {why}")
        if why := await self._controller.go_on(job):
            raise Refused("WrongState", why)
        return await self._done()

    @contextlib.contextmanager
    def _looked_at_even_if_refused(self) -> Iterator[None]:
        """Keep the changes made before a refusal: write the changes, and begin a round of the scheduler."""
        try:
            yield
        except Refused:
            self._controller.table.commits.soon()
            self._controller.rounds.kick()
            raise

    async def _done(self) -> Mapping[str, object]:
        self._controller.rounds.kick()
        await self._written()
        return {}

    async def _written(self) -> None:
        """Return once all changes are on the disk. Raises Refused where the write failed.

        The changes stand even then, and the write is tried again.
        """
        try:
            await self._controller.table.commits.durable()
        except NotWritten as error:
            raise Refused("WrongState", f"it is done, and is not on the disk yet: {error}") from None
