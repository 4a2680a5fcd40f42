"""Suspend and Resume: stop a step, and let the step continue (`daemon/jobs/suspension.py`)."""

from collections.abc import Mapping

from nodectl.model.wire.dispatch import Call
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.jobs.suspension import Suspension


class Suspend:
    """The suspension methods of the node."""

    def __init__(self, registry: Registry, suspension: Suspension) -> None:
        self._registry = registry
        self._suspension = suspension

    async def suspend(self, call: Call) -> Mapping[str, object]:
        """Stop a step. The reply lists the processes still running."""
        by_owner = not self._registry.permissions.is_admin(call.peer)
        return {"running": list(await self._suspension.suspend(self._registry.find_running(call), by_owner=by_owner))}

    async def resume(self, call: Call) -> Mapping[str, object]:
        """Let a step continue."""
        await self._suspension.resume(self._registry.find_running(call))
        return {}
