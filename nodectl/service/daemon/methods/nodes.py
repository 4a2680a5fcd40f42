"""Nodes and UpdateNode: the machine as seen by jobs, and whether jobs may start on this machine."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.device_part import capacity
from nodectl.model.states import RUNNING
from nodectl.model.wire.dispatch import Call, invalid
from nodectl.model.wire.shape import Optional
from nodectl.selection.modes import NODE_STATE_DRAIN
from nodectl.selection.records import NodeRecord
from nodectl.service.daemon.controller.controller import DRAIN, RESUME
from nodectl.service.daemon.controller.options import WORD
from nodectl.service.daemon.methods.job_calls import JobCalls

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

UPDATE_NODE: "Shape" = {"state": WORD, "reason": Optional(WORD)}


class Nodes:
    """The methods about the node."""

    def __init__(self, calls: JobCalls) -> None:
        self._calls = calls

    def nodes(self, call: Call) -> Mapping[str, object]:
        """Return the state of the machine."""
        self._calls.controller.selection.info.refresh()
        return {"nodes": [self._told(node) for node in self._calls.controller.selection.nodes]}

    def states(self) -> Iterator[str]:
        """Yield the state of each job in the queue."""
        return (job.job_state for job in self._calls.controller.table.jobs.values())

    def _told(self, node: NodeRecord) -> Mapping[str, object]:
        controller = self._calls.controller
        ledger = controller.selection.ledger
        used = ledger.cpus_used(node.index)
        jobs = [job for job in controller.table.jobs.values() if job.is_active]
        busy = (used & node.config.usable).bit_count()
        base = "IDLE" if not jobs else "ALLOCATED" if busy >= node.cpus else "MIXED"
        drained = bool(node.node_state & NODE_STATE_DRAIN)
        return {
            "name": node.name,
            "state": ("DRAINING" if jobs else "DRAINED") if drained else base,
            "reason": node.reason,
            "reason_uid": node.reason_uid,
            "reason_time": node.reason_time or None,
            "cpus": node.cpus,
            "cpus_used": busy,
            "cpu_list_used": format_cpulist(cpus_of(used & node.config.usable)),
            "cores": node.cores,
            "memory": node.real_memory,
            "memory_used": ledger.memory_used(node.index),
            "gres": [f"{device.key}{capacity(device)}" for device in node.devices],
            "gres_used": sorted(ledger.devices_used(node.index)),
            "features": list(node.features),
            "select": controller.selection.info.node_data(node),
            "jobs": len(jobs),
            "running": sum(job.job_state == RUNNING for job in jobs),
            "waiting": len(controller.table.jobs) - len(jobs),
        }

    async def update(self, call: Call) -> Mapping[str, object]:
        """Drain the node, or let jobs start again."""
        self._calls.must_be_admin(call)
        state, reason = str(call.parameters["state"]).lower(), str(call.parameters.get("reason", ""))
        if state not in (DRAIN, RESUME):
            raise invalid("state", "drain or resume")
        if state == DRAIN and not reason:
            raise invalid("reason", "say why jobs are not to start here")
        await self._calls.controller.set_node_state(state, reason, call.peer.uid)
        return {}
