"""Signal: a signal for the tasks of a running step. During the prolog a step can only be cancelled."""

import signal
from collections.abc import Mapping

from nodectl.model.wire.dispatch import Call, Refused
from nodectl.model.wire.shape import integer
from nodectl.service.daemon.jobs.registry import WHICH, Registry

SIGNAL = {**WHICH, "signal": integer(1, 64)}


class SendSignal:
    """The Signal method of the node."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def signal(self, call: Call) -> Mapping[str, object]:
        """Send the signal through the stepd, or cancel a step in its prolog."""
        live = self._registry.find_running(call)
        number = call.parameters["signal"]
        if live.in_prolog:
            if number not in (signal.SIGTERM, signal.SIGKILL):
                raise Refused("NoSuchStep", f"step {live.step} has no task yet: its prolog is running")
            live.cancelled = f"step {live.step} was cancelled in its prolog"
            return {}
        await live.order("Signal", {"signal": number, "by": call.peer.uid})
        return {}
