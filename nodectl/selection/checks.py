"""Checks of a plugin's choice: the host believes nothing unchecked.

Pure functions; each returns the broken rule and words about it, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitarray import bitarray

from nodectl.model import device_part
from nodectl.model.value_class import dataclass
from nodectl.selection.offer import Offer
from nodectl.selection.records import JobRecord, JobResources, NodeTable, ReservationRequest

Broken = tuple[str, str] | None
_ONE = bitarray("1")
_FAR = 1 << 40  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class ChoiceBounds:
    """The bounds of a choice: the nodes, the cores kept for the system, and whether memory is counted."""

    table: NodeTable
    kept: bitarray
    tracks_memory: bool


def nodes(chosen: bitarray, offer: Offer, table: NodeTable) -> Broken:
    """Check the bits left set by job_test."""
    if len(chosen) != len(table):
        return "size of the bitmap", f"made the bitmap {len(chosen)} bits long, of {len(table)} nodes"
    foreign = chosen & ~offer.nodes
    if foreign.any():
        return "foreign nodes", f"set the bit of node {table[foreign.find(1)].name}, which was not offered"
    count = chosen.count()
    if not offer.min_nodes <= count <= offer.max_nodes:
        return "count of nodes", f"chose {count} nodes of {offer.min_nodes} to {offer.max_nodes}"
    if offer.required is not None:
        dropped = offer.required & ~chosen
        if dropped.any():
            return "required node", f"dropped node {table[dropped.find(1)].name}, which the job requires"
    return None


def resources(
    given: Any, job: JobRecord, chosen: bitarray, excluded: bitarray | None, room: ChoiceBounds
) -> Broken:  # fmt: skip
    """Check the resources written into job_resrcs."""
    table = room.table
    wrong = _types(given, chosen, table)
    if wrong:
        return "job_resrcs", f"job_resrcs: {wrong}"
    if given.node_bitmap != chosen:
        return "job_resrcs' nodes", "job_resrcs names other nodes than the bitmap"
    wrong = _cores(given, chosen, room) or _amounts(given, room)
    if wrong:
        return "what nodes have", wrong
    if excluded is not None and (given.core_bitmap & excluded).any():
        return "excluded cores", "gave cores that are held for others (exc_core_bitmap)"
    details = job.details
    if not (details.overcommit or details.whole) and given.ncpus < details.min_cpus:
        return "fewest CPUs", f"gave {given.ncpus} CPUs, {details.min_cpus} are the fewest"
    return None


def _types(given: Any, chosen: bitarray, table: NodeTable) -> str:
    if not isinstance(given, JobResources):
        return f"is a {type(given).__name__}, no JobResources"
    for name, size in (("node_bitmap", len(chosen)), ("core_bitmap", table.core_count)):
        bits = getattr(given, name)
        if not isinstance(bits, bitarray) or len(bits) != size:
            return f"{name} is no bitmap of {size} bits"
    for name in ("cpus", "memory", "tasks"):
        values = getattr(given, name)
        if not isinstance(values, dict) or not _are_counts(values):
            return f"{name} is not counts by index of the node"
    gres: Any = given.gres
    if not isinstance(gres, dict) or not all(
        isinstance(keys, tuple) and all(isinstance(key, str) for key in keys) for keys in gres.values()
    ):
        return "gres is not keys of devices by index of the node"
    for name in ("cpus", "memory", "tasks", "gres"):
        for node in getattr(given, name):
            if type(node) is not int or not 0 <= node < len(chosen) or not chosen[node]:
                return f"{name} names node {node!r}, which was not chosen"
    return ""


def _are_counts(values: dict[Any, Any]) -> bool:
    return all(type(count) is int and count >= 0 for count in values.values())


def _cores(given: JobResources, chosen: bitarray, room: ChoiceBounds) -> str:
    table = room.table
    inside = 0
    count = given.core_bitmap.count
    for index in chosen.search(_ONE):
        node = table[index]
        here = count(1, node.core_offset, node.core_offset + node.cores)
        if not here or not given.cpus.get(index):
            return f"gave no core or CPU of node {node.name}, which it chose"
        inside += here
    if inside != count():
        return "gave cores of nodes that it did not choose"
    return "gave cores that are kept for the system" if (given.core_bitmap & room.kept).any() else ""


def _amounts(given: JobResources, room: ChoiceBounds) -> str:
    table = room.table
    for index, cpus in given.cpus.items():
        node = table[index]
        if cpus > node.cpus:
            return f"gave {cpus} CPUs of node {node.name}, which has {node.cpus}"
    for index, memory in given.memory.items() if room.tracks_memory else ():
        node = table[index]
        if node.real_memory and memory > node.real_memory - node.mem_spec_limit:
            return f"gave {memory} MiB of node {node.name}, which has {node.real_memory - node.mem_spec_limit}"
    for index, keys in given.gres.items():
        there = {device.key for device in table[index].devices}
        given_here = [device_part.device_of(key) for key in keys]
        if (
            len(set(given_here)) < len(keys)
            or not there.issuperset(given_here)
            or not all(map(device_part.is_key, keys))
        ):
            return f"gave {', '.join(keys)[:200]} of node {table[index].name}, not devices that it has, each once"
    return ""


def start_time(value: Any) -> Broken:
    """Check the start time written by job_test."""
    if type(value) not in (int, float) or not 0 <= value < _FAR:
        return "start_time", f"set start_time to {value if type(value) in (int, float) else type(value).__name__}"
    return None


def preempted(value: Any, candidates: Sequence[JobRecord]) -> tuple[list[JobRecord], Broken]:
    """Check the jobs to be preempted; return the jobs and the broken rule."""
    if value is None:
        return [], None
    if not isinstance(value, list | tuple):
        return [], ("preempted jobs", f"preempted_jobs is a {type(value).__name__}, no list of jobs")
    known = {id(job): job for job in candidates}
    jobs = {id(job): job for job in value}
    if not jobs.keys() <= known.keys():
        return [], ("preempted jobs", "preempts a job that was no candidate")
    return list(jobs.values()), None


def picked(value: Any, allowed: bitarray, count: int, table: NodeTable) -> str:
    """Check a bitmap of nodes, which must lie inside of `allowed` and have `count` bits."""
    if not isinstance(value, bitarray) or len(value) != len(table):
        return f"no bitmap of {len(table)} nodes"
    foreign = value & ~allowed
    if foreign.any():
        return f"node {table[foreign.find(1)].name} was not offered"
    return "" if value.count() == count else f"{value.count()} nodes, {count} are wanted"


def reserved_cores(
    cores: Any, nodes: bitarray, request: ReservationRequest, taken: bitarray | None, table: NodeTable
) -> str:  # fmt: skip
    """Check the cores of a reservation of parts of nodes."""
    if not request.core_cnt:
        return ""
    if not isinstance(cores, bitarray) or len(cores) != table.core_count:
        return f"no bitmap of {table.core_count} cores"
    if taken is not None and (cores & taken).any():
        return "cores that were not to be used"
    inside = 0
    for index in nodes.search(_ONE):
        node = table[index]
        here = cores.count(1, node.core_offset, node.core_offset + node.cores)
        if here != request.core_cnt:
            return f"{here} cores of node {node.name}, {request.core_cnt} are wanted"
        inside += here
    return "cores of other nodes" if inside != cores.count() else ""
