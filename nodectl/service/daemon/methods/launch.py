"""Reserve and Launch: a number for a step, before a client asks for the step, and the launch of the step.

Both methods check a request in the same way: who asks, what the user may have, where the tasks would go. A step without
a job makes a job, which starts at once or not at all; a client that wants to wait calls Allocate (`allocate.py`). Then
the step starts (`start.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from nodectl.launch.cgroup import tree
from nodectl.model import features
from nodectl.model.config import Config
from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Call, Refused, invalid, withdrawn
from nodectl.model.wire.shape import Optional, an_object
from nodectl.selection.records import RUN, JobRecord
from nodectl.service.daemon.admission import mpi
from nodectl.service.daemon.admission.accounts import User
from nodectl.service.daemon.admission.job_cpus import JobCpus
from nodectl.service.daemon.admission.share import make_first, share_of
from nodectl.service.daemon.admission.slurm_job import SlurmJobs
from nodectl.service.daemon.admission.step_maker import StepMaker
from nodectl.service.daemon.admission.user_budget import UserBudget
from nodectl.service.daemon.controller.controller import Controller
from nodectl.service.daemon.controller.departures import BUSY
from nodectl.service.daemon.controller.job_request import Machine, job_of
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.jobs import further_steps
from nodectl.service.daemon.jobs.cgroup_removals import CgroupRemovals
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.jobs.registry import JOB
from nodectl.service.daemon.methods.start import StepStart

Reply = Mapping[str, object]
_Answer = Callable[[Call, Mapping[str, object], User, str], Reply | Awaitable[Reply]]
_STREAMS = 3

RESERVE = {"jobid": Optional(JOB), "request": Optional(an_object)}
LAUNCH = {"request": an_object}


class Launch:
    """The launch methods of the node. `base`: the path below the cgroup2 mount where jobs live, "" without cgroups."""

    def __init__(  # made once, of everything that a launch needs
        self, config: Config, base: str, store: Store, *, maker: StepMaker, budget: UserBudget, numbers: FurtherSteps,
        job_cpus: JobCpus, controller: Controller, start: StepStart, slurm_jobs: SlurmJobs,
        cgroup_removals: CgroupRemovals,
    ) -> None:  # fmt: skip
        self._base = base
        self._store = store
        self._maker = maker
        self._budget = budget
        self._numbers = numbers
        self._job_cpus = job_cpus
        self._controller = controller
        self._start = start
        self._slurm_jobs = slurm_jobs
        self._cgroup_removals = cgroup_removals
        self._machine = Machine(maker.binder.allocation.bit_count(), config.partition_name)
        self._under_way: set[asyncio.Future[Reply]] = set()
        self._is_over = False

    def reserve(self, call: Call) -> Reply | Awaitable[Reply]:
        """Reserve a number. If the call holds the request of the launch, check the request as a launch does."""
        if "request" in call.parameters:
            return self._consider(call, self._reserve_for)
        if self._maker.known_user({}, call.peer.uid) is None:
            return self._reserve_soon(call)
        return self._numbers.reserve(call)

    async def _reserve_soon(self, call: Call) -> Reply:
        """Reserve a number after looking up the caller's account. Raises Refused for a caller without an account.

        A process may have thousands of uids without an account.
        """
        await self._maker.user_of({}, call.peer.uid)
        return self._numbers.reserve(call)

    def _reserve_for(self, call: Call, request: Mapping[str, object], user: User, level: str) -> Reply:
        if "part" in request:
            raise invalid("part", "it has its numbers with it: none is reserved")
        return self._numbers.reserve(call, self._made(call, request, user, level))

    def launch(self, call: Call) -> Reply | Awaitable[Reply]:
        """Start a step."""
        if call.fds not in (0, _STREAMS):
            raise invalid("request", f"comes with {call.fds} descriptors instead of none or three")
        if self._is_over:
            raise Refused("ServiceEnded", "the service ends")
        begun = self._consider(call, self._admit)
        if not isinstance(begun, Awaitable):
            return begun
        task = asyncio.ensure_future(begun)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def withdraw(self, call: Call) -> Reply:
        """Do nothing: the launch has been answered. The session process withdraws an unanswered launch."""
        return {}

    async def settle(self) -> None:
        """Refuse further launches, and wait until every launch under way has started a step or failed."""
        self._is_over = True
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _consider(self, call: Call, answer: _Answer) -> Reply | Awaitable[Reply]:
        """Answer at once for a known user's own step, so thousands of short steps do not wait in line.

        Otherwise answer after looking up the user, the confinement level and the number.
        """
        request = self._maker.shaped(call.parameters["request"])
        known = self._maker.known_user(request, call.peer.uid)
        level = self._maker.levels.level_of(request, call.peer)
        if known is None or not self._maker.levels.is_ready(level) or self._numbers.must_wait(request):
            return self._look_up(call, request, level, answer)
        return answer(call, request, known, level)

    async def _look_up(self, call: Call, request: Mapping[str, object], level: str, answer: _Answer) -> Reply:
        await self._maker.levels.ready(level)
        user = await self._maker.user_of(request, call.peer.uid)
        await self._numbers.ready(request)
        _must_be_wanted(call)
        answered = answer(call, request, user, level)
        return await answered if isinstance(answered, Awaitable) else answered

    def _made(self, call: Call, request: Mapping[str, object], user: User, level: str) -> Step:
        self._budget.check(user.uid, int(str(request["ntasks"])))
        if "part" in request:
            from nodectl.service.daemon.admission import part  # few steps are parts

            slurm_job = part.allow(request, call.peer, self._slurm_jobs)
            step = self._maker.make(request, user, call.peer.uid, level)
            part.apply(step, request, self._maker.binder, slurm_job)
        else:
            step = self._maker.make(request, user, call.peer.uid, level)
        if not step.bulk:
            mpi.choose(step, request, self._maker.config)
        return step

    def _admit(self, call: Call, request: Mapping[str, object], user: User, level: str) -> Reply | Awaitable[Reply]:
        step = self._made(call, request, user, level)
        if step.bulk and not features.is_installed("bulk"):
            raise invalid("bulk", features.is_missing("bulk"))
        if step.bulk and not call.fds:
            raise invalid("bulk", "the commands of such a step come from a client, which has three descriptors")
        if step.pty and not call.fds:
            raise invalid("pty", "a terminal is shown to a client, which has three descriptors")
        if step.part is not None:
            return self._begin_part(call, step)
        first = self._numbers.first_for(request, call.peer.uid, user.uid)
        if first is None:
            return self._begin_job(call, request, step)
        further_steps.fit(step, first, request)
        self._job_cpus.claim(step, first)
        job, number = self._numbers.take(request, call.peer.uid, first)
        step.job_id, step.step_id = job, number
        step.cgroup = tree.step_path(self._base, job, number) if self._base else ""
        return self._start.begin(step, call)

    def _begin_part(self, call: Call, step: Step) -> Reply | Awaitable[Reply]:
        """Begin a part of a step, which has numbers and CPUs already, and a job unknown to this scheduler."""
        if self._cgroup_removals.is_removing(step.cgroup):
            return self._begin_part_soon(call, step)
        self._numbers.take_part(step, self._controller.table.jobs)
        if self._base and not step.within:
            step.cgroup = tree.step_path(self._base, step.job_id, step.step_id)
        return self._start.begin(step, call)

    async def _begin_part_soon(self, call: Call, step: Step) -> Reply:
        """Begin a part of a step after the cgroup of an earlier part with the same numbers is gone.

        Otherwise the removal of that cgroup, which goes by its path, could kill the new part.
        """
        await self._cgroup_removals.gone(step.cgroup)
        begun = self._begin_part(call, step)
        return await begun if isinstance(begun, Awaitable) else begun

    def slurm_job(self, call: Call) -> Reply:
        """Return the job of Slurm's within which an agent's parts can run here, with cgroup, CPUs and memory.

        Raises Refused where the parts cannot run here.
        """
        job = self._slurm_jobs.of(call.peer)
        self._numbers.leave_out(job.number, call.peer.uid, self._controller.table.jobs)
        return {"job": job.number, "cgroup": job.place, "cpus": f"{job.cpus:x}", "memory": job.memory}

    def _begin_job(self, call: Call, request: Mapping[str, object], step: Step) -> Reply | Awaitable[Reply]:
        """Begin the first step of a job, either of a job with granted resources or of a new job started now."""
        if self._controller.is_queued(request.get("job")):
            job = self._controller.take_granted(int(str(request["job"])), step.uid, call.peer.uid)
            return self._begin_first(call, step, job)
        departures = self._controller.departures
        if departures.others_first:
            return self._begin_soon(call, request, step)
        try:
            job = self._started(request, step, call.peer.uid)
        except Refused as error:
            if error.error != BUSY or not departures.any():
                raise
            return self._begin_soon(call, request, step)
        return self._begin_first(call, step, job)

    async def _begin_soon(self, call: Call, request: Mapping[str, object], step: Step) -> Reply:
        """Begin the first step of a new job as soon as a departing job has freed the resources."""

        def start() -> JobRecord:
            _must_be_wanted(call)
            return self._started(request, step, call.peer.uid)

        job = await self._controller.departures.attempt(start)
        begun = self._begin_first(call, step, job)
        return await begun if isinstance(begun, Awaitable) else begun

    def _begin_first(self, call: Call, step: Step, job: JobRecord) -> Reply | Awaitable[Reply]:
        assert job.job_resrcs is not None  # noqa: S101  # for mypy: it is RUNNING
        share = share_of(job.job_resrcs, self._controller.selection.nodes)
        make_first(step, job, share, self._maker.binder, self._base)
        try:
            begun = self._start.begin(step, call)
        except BaseException as error:
            self._controller.never_began(job, str(error))
            raise
        return self._watched(job, begun) if isinstance(begun, Awaitable) else begun

    def _started(self, request: Mapping[str, object], step: Step, caller: int) -> JobRecord:
        """Return a new, RUNNING job. Raises Refused, with Busy where the job would have to wait."""
        asked = self._maker.binder.options_of(step)
        job = job_of(step, asked, self._machine, request, held_by=RUN)
        # Not before: an invalid request must not use up a job's number.
        job.job_id, _ = self._numbers.take(request, caller, None)
        why = "not started"
        try:
            why = self._controller.try_start(job)
        finally:
            if why:
                self._numbers.give_back(request, caller, job.job_id)
        if why:
            raise Refused("Busy", why)
        if "job" not in request and not self._store.has_next_job:
            asyncio.get_running_loop().call_soon(self._store.draw_next_job)
        return job

    def _watched(self, job: JobRecord, begun: Awaitable[Reply]) -> Awaitable[Reply]:
        """Return the start as a future. If the start fails or is cancelled, the job gives all resources back."""
        start = asyncio.ensure_future(begun)

        def look(done: "asyncio.Future[Reply]") -> None:
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or error is not None:
                self._controller.never_began(job, str(error or "the call was cancelled"))

        start.add_done_callback(look)
        return start


def _must_be_wanted(call: Call) -> None:
    """Raise Refused where the client has withdrawn the call during a wait."""
    if call.withdrawn:
        raise withdrawn()
