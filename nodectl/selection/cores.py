"""Core bitmaps of many nodes, made quickly: equal nodes are looked at once. In the daemon and in planning commands."""

from __future__ import annotations

from collections.abc import Iterable

from bitarray import bitarray

from nodectl.selection.records import NodeRecord, NodeTable


def given_cores(node: NodeRecord) -> bitarray:
    """Return a bit for each core of the node, set for cores with a CPU available to jobs."""
    mask = node.config.usable & ~node.reserved_cpus
    return bitarray(bool(core.mask & mask) for core in node.config.cores)


def kept_cores(table: NodeTable) -> bitarray:
    """Return a core bitmap of the cores kept for the system."""
    seen: dict[tuple[int, int], bitarray] = {}
    kept = bitarray()
    for node in table:
        key = (id(node.config), node.reserved_cpus)
        if key not in seen:
            seen[key] = ~given_cores(node)
        kept += seen[key]
    return kept


def cores_of(table: NodeTable, nodes: Iterable[int]) -> bitarray:
    """Return a core bitmap with all cores of the nodes."""
    bits = bitarray(table.core_count)
    for index in nodes:
        node = table[index]
        bits[node.core_offset : node.core_offset + node.cores] = 1
    return bits
