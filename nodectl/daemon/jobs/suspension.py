"""Jobs and steps that are stopped, and go on: the daemon asks their stepds, and waits until nothing of them runs.

It does not wait for long: a process that hangs in the kernel cannot be frozen. When all steps of a job stand still,
task plugins give its resources up and the queue may give its CPUs to others. Before one goes on they are taken back.
A job is suspended for all or for none: where a plugin refuses, what was stopped goes on, and the caller is told.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import NoReturn
from weakref import WeakValueDictionary

from nodectl.cgroup import tree
from nodectl.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.daemon.jobs.further_steps import FurtherSteps
from nodectl.daemon.jobs.resources import Resources
from nodectl.daemon.jobs.watcher import Watcher
from nodectl.daemon.steps.live import LiveStep
from nodectl.daemon.steps.status_query import status
from nodectl.kernel import pseudo_file
from nodectl.wire.dispatch import Refused

_PAUSE = 0.02
_PATIENCE = 5.0  # seconds beyond the time of grace
_RECLAIM = "memory.reclaim"  # cgroup v2, from Linux 5.19 on


class Suspension:
    """Of one node's jobs. `mount` is the cgroup2 mount; `watcher()` is told when a job stands still, and asked before
    it goes on.
    """

    def __init__(
        self, mount: str, further_steps: FurtherSteps, resources: Resources, tasks: BackgroundTasks,
        watcher: Callable[[], Watcher],
    ) -> None:  # fmt: skip
        self._mount = mount
        self._further_steps = further_steps
        self._resources = resources
        self._tasks = tasks
        self._watcher = watcher
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def _turn(self, job: int) -> asyncio.Lock:
        """The queue may want a job to stand still that it has just let go: one after the other."""
        return self._turns.setdefault(job, asyncio.Lock())

    async def suspend_job(self, job: int, *, by_owner: bool = False) -> Sequence[int]:
        """Stops all steps of a job that runs, and has its memory reclaimed. Returns processes that still run. Raises
        Refused where a step cannot be stopped, or runs all the same, and where a plugin refuses; then those that were
        stopped are let go.
        """
        async with self._turn(job):
            steps = [live for live in self._further_steps.running(job) if not live.suspended]
            if not steps:
                raise Refused("WrongState", f"job {job} has no step that runs")
            orders = (self.suspend(live, by_owner=by_owner) for live in steps)
            results = await asyncio.gather(*orders, return_exceptions=True)
            failed = next((one for one in results if isinstance(one, BaseException) and not self._is_over(one)), None)
            if failed is None and not self._resources.has_given_up(job) and self._goes_on(job):
                failed = Refused("WrongState", f"a step of job {job} was resumed, or has begun, meanwhile")
            if failed is not None:
                # Else a task plugin gave something up and does not get it again: all of the job stays suspended.
                stopped = [] if self._resources.has_given_up(job) else [live for live in steps if live.suspended]
                await asyncio.gather(*map(self._go_on, stopped), return_exceptions=True)
                raise failed
            self._tasks.begin(self._reclaim(steps[0]))
            return [pid for one in results if not isinstance(one, BaseException) for pid in one]

    def has_stopped(self, job: int) -> bool:
        """True when steps of the job stand still, whatever the queue says of the job."""
        return any(live.suspended for live in self._further_steps.running(job))

    async def resume_job(self, job: int) -> None:
        """Lets all steps of a job go on that stand still. The queue has given its CPUs back, or it never had them.
        Raises Refused.
        """
        async with self._turn(job):
            steps = [live for live in self._further_steps.running(job) if live.suspended]
            if not steps:
                raise Refused("WrongState", f"job {job} is not suspended")
            self._take_back(steps[0])
            for live in steps:
                with contextlib.suppress(Refused):  # it has just ended
                    await self._go_on(live)
            self._further_steps.wake(job)

    async def take_over(self, job: int) -> None:
        """What an earlier daemon has told to stop comes to stand still, and the watcher is told."""
        async with self._turn(job):
            steps = [live for live in self._further_steps.running(job) if not live.suspended]
            found = await asyncio.gather(*(status(live, _PATIENCE) for live in steps))
            told = [live for live, one in zip(steps, found, strict=True) if one.get("state") == "SUSPENDED"]
            for live, one in zip(steps, found, strict=True):
                live.suspended_by_owner = bool(one.get("by_owner"))
            results = await asyncio.gather(*map(self._stands_still, told), return_exceptions=True)
            failed = [one for one in results if isinstance(one, BaseException)]
            if not failed and self._resources.has_given_up(job) and (why := self._job_suspended(job)):
                for live in [live for live in self._further_steps.running(job) if live.suspended]:
                    with contextlib.suppress(Refused):  # the queue has told the log why, the task plugin will
                        await self._let_go(live, why)

    async def suspend(self, live: LiveStep, *, by_owner: bool = False) -> Sequence[int]:
        """Stops a step. Where its owner wants that, its time limit runs on, and the job is charged. Returns processes
        of it that still run. Raises Refused; then it goes on.
        """
        await _order(live, "Suspend", by_owner=by_owner)
        live.suspended_by_owner = by_owner
        return await self._stands_still(live)

    async def _stands_still(self, live: LiveStep) -> Sequence[int]:
        """A step that was told to stop. When all steps of its job stand still, the job is suspended. Returns processes
        of the step that still run. Raises Refused where a plugin does not suspend the job; then the step goes on.
        """
        live.suspended = True
        await asyncio.sleep(live.step.suspend_grace_time)
        running = await self._frozen(live) if live.step.cgroup else []
        if live.suspended and not live.ended.done() and self._resources.is_to_be_given_up(live):
            why = self._resources.suspend(live) or self._job_suspended(live.step.job_id)
            if why:
                await self._let_go(live, why)
        return running

    async def _let_go(self, live: LiveStep, why: str) -> NoReturn:
        """A step goes on whose job a plugin does not suspend. Raises Refused with the reason."""
        if kept := self._resources.resume(live):
            raise Refused("WrongState", f"step {live.step} stands still without being suspended: {why}; {kept}")
        live.suspended = False  # before anything else happens: plugins are not asked a second time
        try:
            await self._go_on(live)
        except BaseException:
            live.suspended = True
            raise
        raise Refused("WrongState", f"step {live.step} goes on: {why}")

    async def resume(self, live: LiveStep) -> None:
        """Lets a step go on. Raises Refused."""
        job = live.step.job_id
        if live.suspended and (why := self._watcher().job_resuming(job)):
            raise Refused("WrongState", f"step {live.step} stays suspended: {why}")
        if live.suspended and self._resources.has_given_up(job):
            try:
                self._take_back(live)
            except Refused:
                self._job_suspended(job)  # the queue tells the log where it cannot be
                raise
        await self._go_on(live)
        self._further_steps.wake(job)

    def is_by_owner(self, job: int) -> bool:
        """True where the owner, and no admin, has suspended a step of the job."""
        return any(live.suspended_by_owner for live in self._further_steps.running(job))

    def _job_suspended(self, job: int) -> str:
        return self._watcher().job_suspended(job, by_owner=self.is_by_owner(job))

    def _take_back(self, live: LiveStep) -> None:
        if why := self._resources.resume(live):
            raise Refused("WrongState", f"step {live.step} stays suspended: {why}")

    async def _go_on(self, live: LiveStep) -> None:
        await _order(live, "Resume")
        live.suspended = live.suspended_by_owner = False

    def _goes_on(self, job: int) -> bool:
        return any(not live.ended.done() for live in self._further_steps.running(job))

    def _is_over(self, failed: BaseException) -> bool:
        return isinstance(failed, Refused) and failed.error.endswith(".NoSuchStep")

    async def _frozen(self, live: LiveStep) -> list[int]:
        """Waits until the freezer has stopped the step. Returns the processes that it could not stop."""
        user = tree.Group(f"{self._mount}{live.step.cgroup}/user")
        deadline = time.monotonic() + _PATIENCE
        while not user.is_frozen() and not live.ended.done():
            if time.monotonic() > deadline:
                return [pid for pid in user.pids() if _hangs(pid)]
            await asyncio.sleep(_PAUSE)
        return []

    async def _reclaim(self, live: LiveStep) -> None:
        """Asks the kernel for the memory of a job that stands still, as much as it can get: others may need it."""
        group = tree.Group(f"{self._mount}{live.step.cgroup.rpartition('/')[0]}")
        if not live.step.cgroup or not group.has(_RECLAIM):
            return
        with contextlib.suppress(OSError):  # EAGAIN: there was less to be had
            used = str(group.memory.current).encode("ascii")
            await asyncio.to_thread(pseudo_file.write, f"{group.full_path}/{_RECLAIM}", used)


async def _order(live: LiveStep, method: str, **parameters: object) -> None:
    if live.in_prolog:
        raise Refused("WrongState", f"step {live.step} has no task yet: its prolog is running")
    await live.order(method, parameters)


def _hangs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2][:1] == "D"
    except OSError:
        return False
