"""Signal, Suspend and Resume: a signal for the tasks of a running step; stop a step, and let it continue."""

import signal
from collections.abc import Mapping

from nodectl.model.wire.dispatch import Call, Refused
from nodectl.model.wire.shape import integer
from nodectl.service.daemon.jobs.registry import WHICH, Registry
from nodectl.service.daemon.jobs.suspension import Suspensions

SIGNAL = {**WHICH, "signal": integer(1, 64)}


class SignalStep:
    """The Signal, Suspend and Resume methods of the node."""

    def __init__(self, registry: Registry, suspension: Suspensions) -> None:
        self._registry = registry
        self._suspension = suspension

    async def signal(self, call: Call) -> Mapping[str, object]:
        """Send the signal through the stepd. A step in the prolog can only be cancelled."""
        live = self._registry.find_running(call)
        number = call.parameters["signal"]
        if live.in_prolog:
            if number not in (signal.SIGTERM, signal.SIGKILL):
                raise Refused("NoSuchStep", f"step {live.step} has no task yet: its prolog is running")
            live.cancelled = f"step {live.step} was cancelled in its prolog"
            return {}
        await live.order("Signal", {"signal": number, "by": call.peer.uid})
        return {}

    async def suspend(self, call: Call) -> Mapping[str, object]:
        """Stop a step. The reply lists the processes still running."""
        by_owner = not self._registry.permissions.is_admin(call.peer)
        return {"running": list(await self._suspension.suspend(self._registry.find_running(call), by_owner=by_owner))}

    async def resume(self, call: Call) -> Mapping[str, object]:
        """Let a step continue."""
        await self._suspension.resume(self._registry.find_running(call))
        return {}
