"""List, Show, Explain and Wait: what is known of steps that run and of steps that have ended."""

import asyncio
from collections.abc import Mapping

from nodectl.binding.refused import Refused as NoLayout
from nodectl.daemon.admission.binder import Binder
from nodectl.daemon.history.store import Store
from nodectl.daemon.jobs.registry import WHICH, Registry
from nodectl.daemon.steps import status_query
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import Optional, boolean, integer

_MOST_LISTED = 10_000
_STATUS_SECONDS = 1.0
LIST = {"ended": Optional(integer(0, _MOST_LISTED)), "skip": Optional(integer(0, 2**31))}
WAIT = {**WHICH, "epilog": Optional(boolean)}


class Show:
    """The methods of one node."""

    def __init__(self, registry: Registry, store: Store, binder: Binder) -> None:
        self._registry = registry
        self._store = store
        self._binder = binder

    def list_steps(self, call: Call) -> Mapping[str, object]:
        """The steps that run, and the latest that have ended: the caller's, or all for an admin."""
        uid = None if self._registry.permissions.is_admin(call.peer) else call.peer.uid
        most, skip = (int(str(call.parameters.get(name, 0))) for name in ("ended", "skip"))
        steps: list[Mapping[str, object]] = []
        ending = [one.record for one in self._registry.ending.values() if uid in (None, one.record["uid"])]
        for live in self._registry.live.values():
            if uid in (None, live.step.uid):
                record = live.files.record()  # its client may know of the end before we do
                (steps if record is None else ending).append(live.summary() if record is None else record)
        if skip:
            steps.clear()
        more = False
        if most:
            self._registry.batch.flush()
            steps += (latest := ending[::-1][skip:][:most])
            found, more = self._store.latest(uid, most - len(latest), max(skip - len(ending), 0))
            steps += found
        return {"steps": steps, "more": more}

    async def show(self, call: Call) -> Mapping[str, object]:
        """One step's record, with what its stepd says of it now."""
        live = self._registry.find_live(call)
        if live is None:
            return {"record": self._registry.find_ended(call)}
        if live.files.record() is not None:  # its client may know of the end before we do
            return {"record": await asyncio.shield(live.ended)}
        record = live.summary()
        status = await status_query.status(live, _STATUS_SECONDS)
        return {"record": record | {name: status[name] for name in ("state", "tasks", "pid", "bulk") if name in status}}

    def explain(self, call: Call) -> Mapping[str, object]:
        """A running step's layout, with the reasons for it."""
        live = self._registry.find_running(call)
        try:
            return {"layout": self._binder.explain(live.step)}
        except NoLayout as error:
            reason = f"step {live.step} was laid out before the configuration changed: {error.reason}"
            raise Refused("NoSuchStep", reason) from None

    async def wait(self, call: Call) -> Mapping[str, object]:
        """The record of a step when it has ended, and its job's epilog too where the call asks for that."""
        live = self._registry.find_live(call)
        record = self._registry.find_ended(call) if live is None else await asyncio.shield(live.ended)
        ending = self._registry.ending.get(self._registry.which(call))
        if ending is not None and call.parameters.get("epilog"):
            record = await asyncio.shield(ending.final)
        return {"record": record}
