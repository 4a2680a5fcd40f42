"""Suspend and Resume: the daemon asks the stepd, and waits until nothing of the step runs.

It does not wait for long: a process that hangs in the kernel cannot be frozen.
"""

import asyncio
import time
from collections.abc import Mapping

from nodectl.cgroup import tree
from nodectl.daemon.jobs.registry import Registry
from nodectl.daemon.jobs.resources import Resources
from nodectl.daemon.steps.live import LiveStep
from nodectl.wire.dispatch import Call, Refused

_PAUSE = 0.02
_PATIENCE = 5.0  # seconds beyond the time of grace


class Suspend:
    """The methods of one node. `mount` is the cgroup2 mount."""

    def __init__(self, mount: str, registry: Registry, resources: Resources) -> None:
        self._mount = mount
        self._registry = registry
        self._resources = resources

    async def suspend(self, call: Call) -> Mapping[str, object]:
        """Stops a step. The reply names processes that still run."""
        live = self._registry.find_running(call)
        await _order(live, "Suspend")
        live.suspended = True
        await asyncio.sleep(live.step.suspend_grace_time)
        if not live.step.cgroup:
            self._give_up_resources(live)
            return {"running": []}
        user = tree.Group(f"{self._mount}{live.step.cgroup}/user")
        deadline = time.monotonic() + _PATIENCE
        running: list[int] = []
        while not user.is_frozen() and not live.ended.done():
            if time.monotonic() > deadline:
                running = [pid for pid in user.pids() if _hangs(pid)]
                break
            await asyncio.sleep(_PAUSE)
        self._give_up_resources(live)
        return {"running": running}

    def _give_up_resources(self, live: LiveStep) -> None:
        if live.suspended and not live.ended.done():
            self._resources.suspend(live)

    async def resume(self, call: Call) -> Mapping[str, object]:
        """Lets a step go on."""
        live = self._registry.find_running(call)
        if live.suspended and (why := self._resources.resume(live)):
            raise Refused("WrongState", f"step {live.step} stays suspended: {why}")
        await _order(live, "Resume")
        live.suspended = False
        return {}


async def _order(live: LiveStep, method: str) -> None:
    if live.in_prolog:
        raise Refused("WrongState", f"step {live.step} has no task yet: its prolog is running")
    await live.order(method, {})


def _hangs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2][:1] == "D"
    except OSError:
        return False
