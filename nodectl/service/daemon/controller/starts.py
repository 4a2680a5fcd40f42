"""The start of a batch job: make the step anew from the submitted text, copy the script, start the first step.

By then the job is RUNNING on the disk, with the resources that it holds. If anything goes wrong before its step begins,
the job goes back into the queue, or ends where it can never begin. Runs in the daemon's event loop, as root.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Refused
from nodectl.selection.host import Selection
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.admission.share import make_first, share_of
from nodectl.service.daemon.admission.slices import Slices, Work
from nodectl.service.daemon.admission.step_maker import StepMaker
from nodectl.service.daemon.controller.rows import default_output
from nodectl.service.daemon.controller.spool import Spool
from nodectl.service.daemon.controller.table import text_of
from nodectl.service.daemon.history.batch_text import BatchText, unpacking
from nodectl.service.daemon.history.decoding import Malformed
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.jobs.cgroup_removals import CgroupRemovals
from nodectl.service.daemon.jobs.registry import Registry

_READY_PAUSE = 0.1
_READY_SECONDS = 60.0
_NULL = "/dev/null"


class Begin(Protocol):
    """A function to start a step without a waiting client (`daemon/methods/start.py`)."""

    def __call__(self, step: Step) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Start the step. Raises Refused."""


class CannotBegin(Exception):
    """The job does not begin; str() is a single line. `for_good`: no later try can succeed; else the start is tried
    again.
    """

    def __init__(self, why: str, *, for_good: bool) -> None:
        super().__init__(why)
        self.for_good = for_good


class Starts:
    """The starts of the node's batch jobs.

    `base` is the path below the cgroup2 mount where jobs live. `is_over` returns True for a job that must end before it
    has begun.
    """

    is_over: Callable[[int], bool]

    def __init__(
        self, maker: StepMaker, begin: Begin, registry: Registry, store: JobStore, spool: Spool, base: str,
        cgroup_removals: CgroupRemovals,
    ) -> None:  # fmt: skip
        self._maker = maker
        self._cgroup_removals = cgroup_removals
        self._begin = begin
        self._registry = registry
        self._store = store
        self._spool = spool
        self._base = base
        self._slices = Slices()

    async def ready(self, selection: Selection, job: JobRecord) -> bool:
        """Wait until the select plugin reports the job's nodes as ready.

        Return False where that takes too long, or where the job must end.
        """
        for _ in range(int(_READY_SECONDS / _READY_PAUSE)):
            if selection.job_ready(job):
                return True
            if self.is_over(job.job_id):
                return False
            await asyncio.sleep(_READY_PAUSE)
        return False

    async def begin(self, selection: Selection, job: JobRecord) -> None:
        """Begin the job's first step. Raises CannotBegin; then nothing of the job runs or has run."""
        try:
            packed = self._store.batch(text_of(job))
        except sqlite3.Error as error:
            raise CannotBegin(f"its script cannot be read: {error}", for_good=False) from None
        if packed is None:
            raise CannotBegin("its script is lost", for_good=True)
        try:
            text = await Work(self._slices).through(unpacking(packed))
        except Malformed as error:
            raise CannotBegin(str(error), for_good=True) from None
        try:
            if not await self.ready(selection, job):
                raise CannotBegin("its nodes are not ready", for_good=False)
            step = await self._made(text, job)
            assert job.job_resrcs is not None  # noqa: S101  # for mypy: it is RUNNING
            make_first(step, job, share_of(job.job_resrcs, selection.nodes), self._maker.binder, self._base)
            await self._cgroup_removals.job_gone(step.cgroup)
            if self.is_over(job.job_id):
                raise CannotBegin("it was cancelled", for_good=False)
            step.argv = [self._write_script(text, step), *step.argv[1:]]
            begun = self._begin(step)
            if isinstance(begun, Awaitable):
                await begun
        except Refused as error:
            if self._registry.first(job.job_id) is not None:
                return  # its prolog failed: the end of the job is under way
            self._spool.remove(job.job_id)
            raise CannotBegin(str(error), for_good=not error.error.endswith(".LaunchRefused")) from None

    async def _made(self, text: BatchText, job: JobRecord) -> Step:
        """Return the job's first step, made from the submitted text. Raises Refused."""
        request = self._maker.shaped(text.request["request"])
        caller, level = int(text.request["caller"]), str(text.request["level"])
        user = await self._maker.user_of(request, caller)
        if user.uid != job.user_id:
            raise Refused("NotPermitted", f"{user.name} has another number than when the job was submitted")
        await self._maker.levels.ready(level)
        step = self._maker.make(request, user, caller, level)
        tasks = str(step.ntasks)  # of the steps that the script starts; the script itself is one task
        step.environment = {**step.environment, "SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks}
        step.name, step.ntasks, step.cpu_masks = job.name, 1, [0]
        step.stdin = step.stdin or _NULL
        step.stdout = step.stdout or default_output(job)
        step.stderr = step.stderr or step.stdout
        return step

    def _write_script(self, text: BatchText, step: Step) -> str:
        try:
            return self._spool.write(step.job_id, text.script, step.uid, step.gid)
        except OSError as error:
            raise Refused("LaunchRefused", f"write its script: {error.strerror}", exit_status=1) from None
