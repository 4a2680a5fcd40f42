"""Core bitmaps of many nodes, made quickly: nodes that are alike are looked at once."""

from __future__ import annotations

from collections.abc import Iterable

from bitarray import bitarray

from nodectl.selection.records import NodeRecord, NodeTable


def given_cores(node: NodeRecord) -> bitarray:
    """A bit for each core of the node: those of which a job can be given a CPU."""
    mask = node.config.usable & ~node.reserved_cpus
    return bitarray(bool(core.mask & mask) for core in node.config.cores)


def kept_cores(table: NodeTable) -> bitarray:
    """A core bitmap of the cores that are kept for the system."""
    seen: dict[tuple[int, int], bitarray] = {}
    kept = bitarray()
    for node in table:
        key = (id(node.config), node.reserved_cpus)
        if key not in seen:
            seen[key] = ~given_cores(node)
        kept += seen[key]
    return kept


def cores_of(table: NodeTable, nodes: Iterable[int]) -> bitarray:
    """A core bitmap with all cores of these nodes."""
    bits = bitarray(table.core_count)
    for index in nodes:
        node = table[index]
        bits[node.core_offset : node.core_offset + node.cores] = 1
    return bits
