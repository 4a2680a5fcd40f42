"""Suspend and Resume: a step is stopped, and goes on (`daemon/jobs/suspension.py`)."""

from collections.abc import Mapping

from nodectl.daemon.jobs.registry import Registry
from nodectl.daemon.jobs.suspension import Suspension
from nodectl.wire.dispatch import Call


class Suspend:
    """The methods of one node."""

    def __init__(self, registry: Registry, suspension: Suspension) -> None:
        self._registry = registry
        self._suspension = suspension

    async def suspend(self, call: Call) -> Mapping[str, object]:
        """Stops a step. The reply names processes that still run."""
        by_owner = not self._registry.permissions.is_admin(call.peer)
        return {"running": list(await self._suspension.suspend(self._registry.find_running(call), by_owner=by_owner))}

    async def resume(self, call: Call) -> Mapping[str, object]:
        """Lets a step go on."""
        await self._suspension.resume(self._registry.find_running(call))
        return {}
