"""Operations on the resources of jobs: whole nodes, the sum of two jobs, the rest without a node.

Pure functions; each makes new resources and leaves its arguments as they are.
"""

from __future__ import annotations

from bitarray import bitarray

from nodectl.selection.cores import cores_of
from nodectl.selection.records import JobRecord, JobResources, NodeTable
from nodectl.selection.slurmctld import Parameters

ONE = bitarray("1")


def whole_nodes(job: JobRecord, nodes: bitarray, table: NodeTable, kept: bitarray, given: Parameters) -> JobResources:
    """Return all available resources of the nodes, without the `kept` cores, and the memory requested by the job."""
    chosen = list(nodes.search(ONE))
    cpus = {index: table[index].cpus for index in chosen}
    memory = {index: given.memory_of(job, count) for index, count in cpus.items()}
    return JobResources(nodes.copy(), cores_of(table, chosen) & ~kept, cpus, memory)


def copied(held: JobResources) -> JobResources:
    """Return a copy with nothing shared."""
    return JobResources(
        held.node_bitmap.copy(), held.core_bitmap.copy(), dict(held.cpus), dict(held.memory), dict(held.tasks),
        dict(held.gres),
    )  # fmt: skip


def merged(one: JobResources, other: JobResources) -> JobResources:
    """Return the sum of two jobs' resources."""
    both = copied(one)
    both.node_bitmap |= other.node_bitmap
    both.core_bitmap |= other.core_bitmap
    for ours, theirs in ((both.cpus, other.cpus), (both.memory, other.memory), (both.tasks, other.tasks)):
        for node, count in theirs.items():
            ours[node] = ours.get(node, 0) + count
    for node, keys in other.gres.items():
        both.gres[node] = tuple(sorted({*both.gres.get(node, ()), *keys}))
    return both


def without(held: JobResources, index: int, table: NodeTable) -> JobResources:
    """Return the resources left after giving up a node."""
    left, node = copied(held), table[index]
    left.node_bitmap[index] = 0
    left.core_bitmap[node.core_offset : node.core_offset + node.cores] = 0
    for counts in (left.cpus, left.memory, left.tasks, left.gres):
        counts.pop(index, None)
    return left


def names(nodes: bitarray, table: NodeTable) -> str:
    """Return the names of the nodes of a bitmap, with commas between."""
    return ",".join(table[index].name for index in nodes.search(ONE))
