"""Suspension of jobs and steps: the daemon sends orders to the stepds, and waits until no process of the step runs.

The wait is short, because a process hanging in the kernel cannot be frozen. When all steps of a job stand still, task
plugins give its resources up and the queue may give its CPUs to other jobs. Before the job goes on, the daemon takes
them back. A job is suspended as a whole or not at all: where a plugin refuses, the stopped steps go on, and the caller
learns why.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import NoReturn
from weakref import WeakValueDictionary

from nodectl.kernel import pseudo_file
from nodectl.launch.cgroup import tree
from nodectl.model.states import SUSPENDED
from nodectl.model.wire.dispatch import Refused
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.jobs.resources import Resources
from nodectl.service.daemon.jobs.watcher import Watcher
from nodectl.service.daemon.steps.live import LiveStep
from nodectl.service.daemon.steps.status_query import status

_PAUSE = 0.02
_PATIENCE = 5.0  # seconds beyond the time of grace
_RECLAIM = "memory.reclaim"  # cgroup v2, from Linux 5.19 on


class Suspensions:
    """The suspension of the node's jobs. `mount` is the cgroup2 mount.

    `watcher()` is told when a job stands still, and asked before a job goes on.
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
        self._reclaims: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()  # by user

    def _turn(self, job: int) -> asyncio.Lock:
        """Return the lock of a job: the queue may want to suspend a job just resumed, so requests go in order."""
        return self._turns.setdefault(job, asyncio.Lock())

    async def suspend_job(self, job: int, *, by_owner: bool = False) -> Sequence[int]:
        """Stop all steps of a running job and reclaim the job's memory. Return the pids of processes still running.

        Raises Refused where a step cannot be stopped or keeps running, and where a plugin refuses; then the stopped
        steps go on, unless a plugin has already given up resources.
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
                # Else a task plugin gave up resources and cannot take them back: all of the job stays suspended.
                stopped = [] if self._resources.has_given_up(job) else [live for live in steps if live.suspended]
                await asyncio.gather(*map(self._go_on, stopped), return_exceptions=True)
                raise failed
            self._tasks.begin(self._reclaim(steps[0]))
            return [pid for one in results if not isinstance(one, BaseException) for pid in one]

    def has_stopped(self, job: int) -> bool:
        """Return True when steps of the job stand still, whatever state the queue has for the job."""
        return any(live.suspended for live in self._further_steps.running(job))

    async def resume_job(self, job: int) -> None:
        """Let all stopped steps of a job go on. Raises Refused.

        The queue has given the job's CPUs back, or never had them.
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
        """Complete a suspension begun by an earlier daemon, and tell the watcher."""
        async with self._turn(job):
            steps = [live for live in self._further_steps.running(job) if not live.suspended]
            found = await asyncio.gather(*(status(live, _PATIENCE) for live in steps))
            told = [live for live, one in zip(steps, found, strict=True) if one.get("state") == SUSPENDED]
            for live, one in zip(steps, found, strict=True):
                live.suspended_by_owner = bool(one.get("by_owner"))
            results = await asyncio.gather(*map(self._stands_still, told), return_exceptions=True)
            failed = [one for one in results if isinstance(one, BaseException)]
            if not failed and self._resources.has_given_up(job) and (why := self._job_suspended(job)):
                for live in [live for live in self._further_steps.running(job) if live.suspended]:
                    with contextlib.suppress(Refused):  # the queue has logged the reason, the task plugin will
                        await self._let_go(live, why)

    async def suspend(self, live: LiveStep, *, by_owner: bool = False) -> Sequence[int]:
        """Stop a step. Return the pids of processes still running. Raises Refused; then the step goes on.

        With `by_owner` the time limit runs on, and the job is charged.
        """
        await _order(live, "Suspend", by_owner=by_owner)
        live.suspended_by_owner = by_owner
        return await self._stands_still(live)

    async def _stands_still(self, live: LiveStep) -> Sequence[int]:
        """Complete the stop of a step. When all steps of the job stand still, suspend the job.

        Returns the processes of the step that still run. Raises Refused where a plugin does not suspend the job; then
        the step goes on.
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
        """Let a step go on, because a plugin does not suspend the job. Raises Refused with the reason."""
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
        """Let a step go on. Raises Refused."""
        job = live.step.job_id
        if live.suspended and (why := self._watcher().job_resuming(job)):
            raise Refused("WrongState", f"step {live.step} stays suspended: {why}")
        if live.suspended and self._resources.has_given_up(job):
            try:
                self._take_back(live)
            except Refused:
                self._job_suspended(job)  # the queue logs why the job cannot be suspended
                raise
        await self._go_on(live)
        self._further_steps.wake(job)

    def is_by_owner(self, job: int) -> bool:
        """Return True where the owner, not an admin, has suspended a step of the job."""
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
        """Wait until the freezer has stopped the step. Return the pids of processes that could not be stopped."""
        user = tree.Group(f"{self._mount}{live.step.cgroup}/user")
        deadline = time.monotonic() + _PATIENCE
        while not user.is_frozen() and not live.ended.done():
            if time.monotonic() > deadline:
                return [pid for pid in user.pids() if _hangs(pid)]
            await asyncio.sleep(_PAUSE)
        return []

    async def _reclaim(self, live: LiveStep) -> None:
        """Ask the kernel to reclaim the memory of a suspended job, as much as possible, for use by running jobs.

        The threads are few, and a user may suspend many jobs: they take one thread together.
        """
        group = tree.Group(f"{self._mount}{live.step.cgroup.rpartition('/')[0]}")
        if not live.step.cgroup or not group.has(_RECLAIM):
            return
        async with self._reclaims.setdefault(live.step.uid, asyncio.Lock()):
            with contextlib.suppress(OSError):  # EAGAIN: there was less to be had
                used = str(group.memory.current).encode("ascii")
                if live.suspended:
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
