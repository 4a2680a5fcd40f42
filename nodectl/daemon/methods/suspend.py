"""The daemon's part of suspending a step: it asks the stepd, and waits until nothing of the step runs; not for ever,
for a process that hangs in the kernel cannot be frozen.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from nodectl.cgroup import tree
from nodectl.daemon.steps.live import LiveStep
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import integer

if TYPE_CHECKING:
    from nodectl.daemon.node import Node
    from nodectl.wire.shape import Shape

_WHICH = {"job": integer(1, 2**32 - 1), "step": integer(0, 2**32 - 1)}
_PAUSE = 0.02
_PATIENCE = 5.0  # seconds beyond the time of grace


class Suspensions:
    """The methods of one node."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def methods(self) -> "dict[str, tuple[Shape, Callable[[Call], Awaitable[object]]]]":
        """Rows of the table of methods."""
        return {"Suspend": (_WHICH, self._suspend), "Resume": (_WHICH, self._resume)}

    async def _suspend(self, call: Call) -> Mapping[str, object]:
        """The reply names processes that still run."""
        live = self._node.find_running(call)
        await _ask(live, "Suspend")
        live.suspended = True
        await asyncio.sleep(live.step.suspend_grace_time)
        if not live.step.cgroup:
            self._stands_still(live)
            return {"running": []}
        user = tree.Group(f"{self._node.mount}{live.step.cgroup}/user")
        deadline = time.monotonic() + _PATIENCE
        running: list[int] = []
        while not is_frozen(user) and not live.ended.done():
            if time.monotonic() > deadline:
                running = [pid for pid in user.pids() if _hangs(pid)]
                break
            await asyncio.sleep(_PAUSE)
        self._stands_still(live)
        return {"running": running}

    def _stands_still(self, live: LiveStep) -> None:
        if live.suspended and not live.ended.done():
            self._node.resources.suspend(live)

    async def _resume(self, call: Call) -> Mapping[str, object]:
        live = self._node.find_running(call)
        if live.suspended and (why := self._node.resources.resume(live)):
            raise Refused("WrongState", f"step {live.step} stays suspended: {why}")
        await _ask(live, "Resume")
        live.suspended = False
        return {}


async def _ask(live: LiveStep, method: str) -> None:
    if live.in_prolog:
        raise Refused("WrongState", f"step {live.step} has no task yet: its prolog is running")
    answer = await live.ask(method, {})
    if answer is None:
        raise Refused("NoSuchStep", f"step {live.step} has just ended")
    pass_on(answer)


def pass_on(answer: Mapping[str, object]) -> None:
    """A stepd's refusal is ours."""
    if "error" in answer:
        parameters: Mapping[str, object] = answer.get("parameters", {})  # type: ignore[assignment]  # the stepd's own words
        raise Refused(str(answer["error"]).rpartition(".")[2], str(parameters.get("reason", "")))


def is_frozen(group: tree.Group) -> bool:
    """True when everything in a cgroup stands still."""
    try:
        return bool(group.core.events.get("frozen") == 1)
    except FileNotFoundError:
        return False


def _hangs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2][:1] == "D"
    except OSError:
        return False
