"""Whether jobs may start on this machine: drained by an admin, or by a failing prolog or epilog. Survives restarts."""

import time
from collections.abc import Mapping
from typing import Any

from nodectl import messages
from nodectl.model.wire.dispatch import Refused
from nodectl.selection.modes import NODE_STATE_DRAIN
from nodectl.selection.records import NodeRecord
from nodectl.service.daemon.controller.commits import NotWritten
from nodectl.service.daemon.controller.core import Core

DRAIN, RESUME = "drain", "resume"


class Drain:
    """The drain state of the node."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def restore(self, node: NodeRecord) -> None:
        """Restore the state left by an earlier daemon, before the daemon answers any call."""
        kept = self._core.table.store.node()
        if kept is not None and kept[0] == DRAIN:
            _, node.reason, node.reason_uid, node.reason_time = kept
            node.node_state |= NODE_STATE_DRAIN

    async def update(self, state: str, reason: str, uid: int) -> None:
        """Set the state as an admin asks. Raises Refused."""
        node: NodeRecord = self._core.selection.nodes[0]
        before = (node.node_state, node.reason, node.reason_uid, node.reason_time)
        self._set(state, reason, uid)
        try:
            await self._core.table.commits.durable()
        except NotWritten as error:
            self._core.table.store.forget_statement("node")
            node.node_state, node.reason, node.reason_uid, node.reason_time = before
            self._core.selection.update_node_state(node)
            raise Refused("WrongState", f"node {node.name} is as it was: {error}") from None

    def failed(self, record: Mapping[str, Any]) -> None:
        """Drain the node, if configured, after a failed prolog or epilog. `record` is the record of the job's first
        step.
        """
        costly = (name for name in self._core.config.drain_on_failure if record.get(name))
        why = next((str(record[name]) for name in costly), "")
        node: NodeRecord = self._core.selection.nodes[0]
        if why and not node.node_state & NODE_STATE_DRAIN:
            messages.tell("node-drained", f"node {node.name} is drained: {why}", job=record["job"])
            self._set(DRAIN, why, 0)
            self._core.table.commits.soon()

    def _set(self, state: str, reason: str, uid: int) -> None:
        node: NodeRecord = self._core.selection.nodes[0]
        now = time.time()
        if state == DRAIN:
            node.node_state |= NODE_STATE_DRAIN
            node.reason, node.reason_uid, node.reason_time = reason, uid, now
        else:
            node.node_state &= ~NODE_STATE_DRAIN
            node.reason, node.reason_uid, node.reason_time = "", 0, 0.0
        self._core.selection.update_node_state(node)
        self._core.table.store.put_node(state, reason, uid, now)
        self._core.scheduler.changed(now)
        self._core.rounds.kick()
