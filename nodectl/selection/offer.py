"""The offer to a plugin for a job: which nodes, and how many of the nodes may be chosen.

Pure but for the bitmaps of a job's named nodes, which are written into its details once.
"""

from __future__ import annotations

from bitarray import bitarray

from nodectl.model.value_class import dataclass
from nodectl.selection.answers import BUSY, NEVER, NODES_BUSY, NOT_AVAILABLE, Refusal
from nodectl.selection.modes import SELECT_MODE_TEST_ONLY
from nodectl.selection.records import JobDetails, JobRecord, NodeTable

_SHOWN = 40  # characters of a name


@dataclass(slots=True)
class Offer:
    """The nodes for a choice: how many at least, at most and best, and the required nodes."""

    nodes: bitarray
    min_nodes: int
    max_nodes: int
    req_nodes: int
    required: bitarray | None

    def without(self, nodes: bitarray) -> Offer | None:
        """Return the offer without these nodes; None where too few are left."""
        left = self.nodes & ~nodes
        missing = self.required is not None and (self.required & nodes).any()
        if missing or left.count() < self.min_nodes:
            return None
        return Offer(left, self.min_nodes, self.max_nodes, self.req_nodes, self.required)


class Offers:
    """The maker of offers over a table of nodes. The set of nodes in service is kept until `look_again`."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._features: dict[str, bitarray] = {}
        self._up = nodes.bitmap()
        self._every = ~self._up
        self.look_again()

    def look_again(self) -> None:
        """Read the nodes again, because the state or configuration of a node has changed."""
        self._up = bitarray(node.may_start_jobs for node in self._nodes)
        self._features.clear()

    def of(self, job: JobRecord, mode: int, nodes: bitarray | None) -> Offer | Refusal:
        """Return the offer for a job. `nodes`: offer only nodes of this bitmap.

        SELECT_MODE_TEST_ONLY offers all configured nodes, also nodes that are down or drained.
        """
        details = job.details
        unknown = self._resolve(details)
        if unknown:
            return Refusal(NEVER, f"Invalid node name specified: {unknown}", subject="node name")
        ever = mode == SELECT_MODE_TEST_ONLY
        offered = self._every.copy() if ever else self._up.copy()
        if nodes is not None:
            offered &= nodes
        if details.exc_node_bitmap is not None:
            offered &= ~details.exc_node_bitmap
        for feature in details.features:
            having = self._with_feature(feature)
            if ever and not having.any():
                return Refusal(NEVER, f"Invalid feature specification: no node has {feature[:_SHOWN]!r}")
            offered &= having
            if not offered.any():
                break  # users may name very many
        required = details.req_node_bitmap
        least = max(details.min_nodes, 1, required.count() if required is not None else 0)
        most = details.max_nodes or max(len(self._nodes), least)
        missing = required is not None and (required & ~offered).any()
        if missing or offered.count() < least or most < least:
            return Refusal(NEVER, NOT_AVAILABLE) if ever else Refusal(BUSY, NODES_BUSY)
        return Offer(offered, least, most, min(details.max_nodes or least, most), required)

    def _resolve(self, details: JobDetails) -> str:
        """Write the bitmaps of the nodes named by the job. Return the first unknown required name, "" for none."""
        if details.req_nodes and details.req_node_bitmap is None:
            unknown = [name for name in details.req_nodes if name not in self._nodes.by_name]
            if unknown:
                return unknown[0]
            details.req_node_bitmap = self._named(details.req_nodes)
        if details.exc_nodes and details.exc_node_bitmap is None:
            details.exc_node_bitmap = self._named(details.exc_nodes)
        return ""

    def _named(self, names: tuple[str, ...]) -> bitarray:
        known = self._nodes.by_name
        return self._nodes.bitmap(known[name].index for name in names if name in known)

    def _with_feature(self, feature: str) -> bitarray:
        found = self._features.get(feature)
        if found is None:
            found = bitarray(feature in node.features for node in self._nodes)
            if found.any():  # users may ask for anything: a feature of no node is not kept
                self._features[feature] = found
        return found
