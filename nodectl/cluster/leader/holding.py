"""What a step holds of the nodes, in words that outlive a table of nodes and a leader: by rank, masks of CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bitarray import bitarray

from nodectl.model.cpu_list import format_cpulist
from nodectl.model.number import whole
from nodectl.selection.modes import RUNNING
from nodectl.selection.records import JobRecord, JobResources, NodeTable

_MOST_RANKS = 10_000_000


class Share(NamedTuple):
    """Of one node: a machine mask, how many of its CPUs count, MiB, tasks, keys of devices."""

    mask: int
    cpus: int
    memory: int
    tasks: int
    gres: tuple[str, ...]


class Held:
    """Of one step. `number`: under which the table knows it, 0 where it holds nothing for itself."""

    __slots__ = ("number", "shares")

    def __init__(self, shares: Mapping[int, Share], number: int = 0) -> None:
        self.shares = shares
        self.number = number

    def write(self, job: JobRecord, nodes: NodeTable, place_of: Mapping[int, int]) -> bool:
        """Into the record of a job, which holds it on this table from then on. False where no node of it is there."""
        shares = {place_of[rank]: share for rank, share in self.shares.items() if rank in place_of}
        if not shares:
            return False
        job.job_resrcs = resources_of(shares, nodes)
        job.node_bitmap = job.job_resrcs.node_bitmap
        job.job_state = RUNNING
        return True

    def as_json(self) -> list[object]:
        """Its number, and rows of ranks that have the same."""
        alike: dict[Share, list[int]] = {}
        for rank, share in self.shares.items():
            alike.setdefault(share, []).append(rank)
        return [
            self.number,
            *(
                [format_cpulist(ranks), f"{one.mask:x}", one.cpus, one.memory, one.tasks, list(one.gres)]
                for one, ranks in alike.items()
            ),
        ]

    @classmethod
    def from_json(cls, told: Sequence[Any]) -> Held:
        """What `as_json` wrote. Raises ValueError, TypeError, IndexError."""
        number, *rows = told
        shares = {}
        for ranks, mask, cpus, memory, tasks, gres in rows:
            share = Share(int(mask, 16), cpus, memory, tasks, tuple(gres))
            shares.update(dict.fromkeys(ranks_of(ranks), share))
        return cls(dict(sorted(shares.items())), number)


def resources_of(shares: Mapping[int, Share], nodes: NodeTable) -> JobResources:
    """The same as a select plugin has it, by index of the node."""
    cores = bitarray(nodes.core_count)
    known: dict[tuple[int, int], bitarray] = {}  # thousands of nodes are of a few kinds
    for index, share in shares.items():
        node = nodes[index]
        kind = id(node.config), share.mask
        if kind not in known:
            known[kind] = bitarray(bool(core.mask & share.mask) for core in node.config.cores)
        cores[node.core_offset : node.core_offset + len(known[kind])] = known[kind]
    return JobResources(
        nodes.bitmap(shares),
        cores,
        {index: share.cpus for index, share in shares.items()},
        {index: share.memory for index, share in shares.items()},
        {index: share.tasks for index, share in shares.items()},
        {index: share.gres for index, share in shares.items() if share.gres},
    )


def shares_of(chosen: JobResources, nodes: NodeTable, parts: Mapping[int, Share], memory: int) -> dict[int, Share]:
    """What a select plugin chose, by index of the node, for a step that holds all of it. `parts`: what its tasks need
    there, which says the memory and devices that the plugin does not name. `memory`: MiB of a node without tasks.
    """
    shares = {}
    for index in chosen.node_bitmap.search(1):
        part = parts.get(index, Share(0, 0, memory, 0, ()))
        mask = nodes.cpu_mask(nodes[index], chosen.core_bitmap)
        held, gres = chosen.memory.get(index, 0) or part.memory, chosen.gres.get(index, ()) or part.gres
        shares[index] = Share(mask, chosen.cpus.get(index, 0), held, part.tasks, gres)
    return shares


def ranks_of(text: str) -> list[int]:
    """The numbers of a list as `0-3,8`: of ranks and tasks there may be more than of CPUs. Raises ValueError."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        low, dash, high = part.partition("-")
        first, last = whole(low, _MOST_RANKS), whole(high if dash else low, _MOST_RANKS)
        if first is None or last is None or last < first:
            raise ValueError(f"no list of numbers: {text[:60]!r}")
        numbers += range(first, last + 1)
    return numbers
