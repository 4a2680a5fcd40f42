"""List, Usage, Show, Explain and Wait: the state of running and ended steps."""

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from nodectl.launch.cgroup import tree
from nodectl.launch.cgroup.usage import MOST_LOOKED_AT, Usage, UsageReader
from nodectl.model.wire.dispatch import Call, Refused
from nodectl.model.wire.shape import Optional, boolean, integer
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.service.daemon.admission.binder import Binder
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.jobs.registry import WHICH, Registry
from nodectl.service.daemon.steps import process_usage, status_query

if TYPE_CHECKING:
    from nodectl.service.daemon.steps.live import LiveStep

_MOST_LISTED = 10_000
_MOST_READ = 1000  # steps that are looked at in one call
_AT_A_TIME = 8  # steps, before other work of the event loop has its turn
_STATUS_SECONDS = 1.0
LIST = {"ended": Optional(integer(0, _MOST_LISTED)), "skip": Optional(integer(0, 2**31))}
WAIT = {**WHICH, "epilog": Optional(boolean)}


class Show:
    """The methods to show steps of the node. `mount` is the cgroup2 mount."""

    def __init__(self, mount: str, registry: Registry, store: Store, binder: Binder) -> None:
        self._mount = mount
        self._registry = registry
        self._store = store
        self._binder = binder
        self._reading = asyncio.Lock()

    def list_steps(self, call: Call) -> Mapping[str, object]:
        """Return the running steps and the latest ended steps: the caller's, or all for an admin."""
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

    async def usage(self, call: Call) -> Mapping[str, object]:
        """Return the current usage of the running steps: the caller's, or of all users for an admin.

        The daemon reads it in small pieces, one call after another, however many steps there are and however often the
        method is called.
        """
        async with self._reading:
            return {"steps": await self._usage(call)}

    async def _usage(self, call: Call) -> list[Mapping[str, object]]:
        uid = None if self._registry.permissions.is_admin(call.peer) else call.peer.uid
        mine = (one for one in self._registry.live.values() if uid in (None, one.step.uid) and not one.in_prolog)
        running = list(islice(mine, _MOST_READ))
        others = {one.key: (one.pid, one.spent_before) for one in running if not one.step.cgroup}
        used = await process_usage.of_steps(others)
        reader = UsageReader(in_all=MOST_LOOKED_AT)
        rows: list[Mapping[str, object]] = []
        for number, one in enumerate(running, 1):
            if not one.ended.done():
                rows.append(_row(one, used.get(one.key) or reader.read(one.step.cgroup)))
            if number % _AT_A_TIME == 0:
                await asyncio.sleep(0)
        return rows

    async def show(self, call: Call) -> Mapping[str, object]:
        """Return a step's record, with the current state from the stepd."""
        live = self._registry.find_live(call)
        if live is None:
            return {"record": self._registry.find_ended(call)}
        if live.files.record() is not None:  # its client may know of the end before we do
            return {"record": await asyncio.shield(live.ended)}
        record = {**live.summary(), **self._logins(live)}
        status = await status_query.status(live, _STATUS_SECONDS)
        return {"record": record | {name: status[name] for name in ("state", "tasks", "pid", "bulk") if name in status}}

    def _logins(self, live: "LiveStep") -> Mapping[str, object]:
        """Return the number of processes of login sessions that have joined the step's job."""
        group = tree.Group(f"{self._mount}{live.step.cgroup}/user/{tree.LOGINS}")
        try:
            count = len(group.core.procs) if live.step.cgroup else 0
        except OSError:
            count = 0  # no session has come
        return {"login_processes": count} if count else {}

    def explain(self, call: Call) -> Mapping[str, object]:
        """Return a running step's layout, with the reasons."""
        live = self._registry.find_running(call)
        try:
            return {"layout": self._binder.explain(live.step)}
        except NoLayout as error:
            reason = f"step {live.step} was laid out before the configuration changed: {error.reason}"
            raise Refused("NoSuchStep", reason) from None

    async def wait(self, call: Call) -> Mapping[str, object]:
        """Return the record of a step after its end, and after the job's epilog where the call asks for the epilog."""
        live = self._registry.find_live(call)
        record = self._registry.find_ended(call) if live is None else await asyncio.shield(live.ended)
        ending = self._registry.ending.get(self._registry.which(call))
        if ending is not None and call.parameters.get("epilog"):
            record = await asyncio.shield(ending.final)
        return {"record": record}


def _row(live: "LiveStep", used: Usage) -> Mapping[str, object]:
    return {
        "job": live.step.job_id, "step": live.step.step_id, "cpu_seconds": used.cpu_seconds, "memory": used.memory,
        "read": used.read, "written": used.written, "pressure": used.pressure,
    }  # fmt: skip
