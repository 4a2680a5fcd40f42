"""The common parts of the methods about jobs: from a call to the record of a job, and which jobs a caller may touch."""

import asyncio
import time
from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple

from nodectl.model import reasons
from nodectl.model.number import whole
from nodectl.model.states import ENDED
from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Call, Refused, invalid, subject
from nodectl.scheduler.dependency import EXPAND, SINGLETON, BadDependency
from nodectl.scheduler.dependency import parse as parse_dependency
from nodectl.scheduler.explain import Explanation
from nodectl.scheduler.waits import no_target
from nodectl.selection.records import BATCH, JobDetails, JobRecord
from nodectl.service.daemon.admission.slices import Slices, Work
from nodectl.service.daemon.admission.step_maker import StepMaker
from nodectl.service.daemon.admission.turns import Turns
from nodectl.service.daemon.connections.permissions import Permissions
from nodectl.service.daemon.controller.controller import Controller
from nodectl.service.daemon.controller.job_names import LARGEST, name_of, parse
from nodectl.service.daemon.controller.job_request import Machine, apply_options, checked_options, job_of
from nodectl.service.daemon.controller.rows import without_others


class WantedJob(NamedTuple):
    """The request of a call: the job without a number, the first step, the launch request, the confinement level."""

    job: JobRecord
    step: Step
    request: Mapping[str, object]
    level: str

    @property
    def numbered(self) -> Mapping[str, object]:
        """The part of the request with the job number reserved by the client, empty for none; never a step number."""
        return {"job": self.request["job"]} if "job" in self.request else {}


class JobCalls:
    """The calls about jobs on the node."""

    def __init__(
        self, controller: Controller, maker: StepMaker, permissions: Permissions, partition: str, *, private: bool
    ) -> None:
        self.controller = controller
        self.permissions = permissions
        self.hides_others = private
        self._maker = maker
        self._slices = Slices()
        self._turns = Turns()
        self._machine = Machine(maker.binder.allocation.bit_count(), partition)

    async def wanted(self, call: Call, held_by: str) -> WantedJob:
        """Read and check the parameters `request` and `job`. Raises Refused."""
        request = self._maker.shaped(call.parameters["request"])
        if "part" in request:
            raise invalid("part", "a step is one, and no job")
        options = checked_options(call.parameters["job"])
        level = self._maker.levels.level_of(request, call.peer)
        await self._maker.levels.ready(level)
        user = await self._maker.user_of(request, call.peer.uid)
        step = self._maker.make(request, user, call.peer.uid, level)
        asked = self._maker.binder.options_of(step)
        job = job_of(step, asked, self._machine, request, held_by=held_by)
        apply_options(job, options, is_admin=self.permissions.is_admin(call.peer))
        if job.details.notices:
            job.details.notices["secure"] = level
        await self.learn(call, job.details.dependency)
        return WantedJob(job, step, request, level)

    def level_of(self, call: Call, request: Mapping[str, object], level: str) -> str:
        """Return the level of a job that the call changes. Raises Refused for a caller at a higher level."""
        return self._maker.levels.level_of({**request, "secure": level}, call.peer)

    async def details_of(self, request: Mapping[str, object], caller: int, level: str) -> JobDetails:
        """Return the description of a batch job with this request. Raises Refused."""
        shaped = self._maker.shaped(request)
        await self._maker.levels.ready(level)
        user = await self._maker.user_of(shaped, caller)
        step = self._maker.make(shaped, user, caller, level)
        return job_of(step, self._maker.binder.options_of(step), self._machine, shaped, held_by=BATCH).details

    def accepted(self, job: JobRecord) -> Mapping[str, object]:
        """Return the reply about a new job."""
        warnings = self.controller.parts.notices.warnings(job)
        if job.state_reason == reasons.NEVER_SATISFIED:
            warnings.append(f"job {job.job_id} will never start: {job.state_desc}")
        return {"job": job.job_id, "warnings": warnings} if warnings else {"job": job.job_id}

    async def learn(self, call: Call, dependency: str) -> None:
        """Look up the jobs of a dependency in the history. Raises Refused for a job that the caller may not know of.

        Where users may not see each other's jobs, a job that waits for one would tell when that ends, and how.
        """
        work = self.work()
        await work.through(self.controller.scheduler.learning(dependency))
        if self.hides_others and not self.is_admin(call):
            await work.through(self._looking_for(call.peer.uid, dependency))

    def _looking_for(self, uid: int, dependency: str) -> Generator[None, None, None]:
        """Raise Refused unless all jobs of a dependency are this user's. The caller may pause at any yield."""
        try:
            terms = parse_dependency(dependency).terms if dependency else ()
        except BadDependency:
            return  # the scheduler says what is wrong
        for term in terms:
            if term.kind in (SINGLETON, EXPAND):  # of the user's own
                continue
            job = self.controller.table.anywhere(term.job_id)
            if job is None or job.user_id != uid:
                raise Refused("LaunchRefused", str(no_target(term)), exit_status=1, **subject("dependency"))
            yield

    def is_admin(self, call: Call) -> bool:
        """Return True for root and members of admin_group."""
        return self.permissions.is_admin(call.peer)

    def must_be_admin(self, call: Call) -> None:
        """Raise Refused unless the caller is an admin."""
        if not self.is_admin(call):
            raise Refused("NotPermitted", "only root and members of the admin group may do that", subject="admins")

    async def explained(self, call: Call, job: JobRecord) -> Explanation:
        """Return why a job waits, as far as the caller may know. The job may have started by then."""
        await self._slices.next()  # many may ask at once, as after each round of the scheduler
        why = await self.work().through(self.controller.scheduler.explaining(job, time.time()))
        return without_others(why, job.user_name) if self.hides_others and not self.is_admin(call) else why

    def work(self) -> Work:
        """Return the budget and slices of a call with piecewise work; pending calls are served in between."""
        return Work(self._slices)

    def turn(self, call: Call) -> asyncio.Lock:
        """Return the caller's lock, for `async with`: each user has a single call through the whole queue at a time."""
        return self._turns.of(call.peer.uid)

    async def one(self, call: Call, text: str) -> JobRecord:
        """Return the queued job of a name, for the job's owner and admins. Raises Refused."""
        job, _ = (await self.several(call, [text], self.work()))[0]
        return job

    async def several(self, call: Call, texts: Iterable[str], work: Work) -> list[tuple[JobRecord, str]]:
        """Return the queued jobs that names mean, each with the meant tasks of a waiting array. Some may end meanwhile.

        Raises Refused where no jobs have these names, or where the names mean too much.
        """
        names = list(dict.fromkeys(texts))
        mine: dict[tuple[JobRecord, str], None] = {}
        others = ""
        for text in names:
            for job, tasks in self.controller.table.named(text, work.spend):
                if self.permissions.may_see(call.peer, job.user_id):
                    mine[job, tasks] = None
                else:
                    others = text
            if work.is_due():
                await work.rest()
        if mine:
            return list(mine)
        if others and not self.hides_others:
            raise Refused("NotPermitted", f"job {others} is not yours")
        if others or len(names) > 1:
            raise no_job(others or ", ".join(names[:4]))
        raise self.none(call, names[0]) if names else no_job("")

    def none(self, call: Call, text: str) -> Refused:
        """Return the refusal of a name without a job in the queue."""
        name, table = parse(text), self.controller.table
        job = table.anywhere(name.job)
        if name.tasks:
            index = whole(name.tasks, LARGEST)
            kept = None if index is None else table.store.task(name.job, index)
            job = None if kept is None else kept.record
        if job is None or job.job_state not in ENDED or not self.permissions.may_see(call.peer, job.user_id):
            return no_job(text)
        if job.array_task_id is not None and not name.tasks and name.job == job.array_job_id:
            return Refused("NoSuchJob", f"all tasks of job {name.job} have ended")  # its number is that of one of them
        return Refused("NoSuchJob", f"job {name_of(job)} has ended: {job.job_state}")


def no_job(text: str) -> Refused:
    """Return the refusal of an unknown job name."""
    return Refused("NoSuchJob", f"no job {text} waits or runs", subject="unknown")
