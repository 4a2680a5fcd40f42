"""A step's share of the nodes, by rank with masks of CPUs, valid beyond a node table and a leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bitarray import bitarray

from nodectl.model.cpu_list import format_cpulist
from nodectl.model.number import whole
from nodectl.model.states import RUNNING
from nodectl.selection.records import JobRecord, JobResources, NodeTable

_MOST_RANKS = 10_000_000


class Share(NamedTuple):
    """A share of a node: a machine mask, the count of CPUs, MiB, the number of tasks, keys of devices."""

    mask: int
    cpus: int
    memory: int
    tasks: int
    gres: tuple[str, ...]


class Held:
    """A step's shares of all nodes.

    `number`: the step's number in the table; 0 where the step holds nothing for itself.
    """

    __slots__ = ("number", "shares")

    def __init__(self, shares: Mapping[int, Share], number: int = 0) -> None:
        self.shares = shares
        self.number = number

    def write(self, job: JobRecord, nodes: NodeTable, place_of: Mapping[int, int]) -> bool:
        """Write the shares into the job's record, which then holds the shares in this table.

        Return False where none of the nodes is in the table.
        """
        shares = {place_of[rank]: share for rank, share in self.shares.items() if rank in place_of}
        if not shares:
            return False
        job.job_resrcs = resources_of(shares, nodes)
        job.node_bitmap = job.job_resrcs.node_bitmap
        job.job_state = RUNNING
        return True

    def as_json(self) -> list[object]:
        """Return the number, and a row for each set of ranks with equal shares."""
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
        """Read the result of `as_json`. Raises ValueError, TypeError, IndexError."""
        number, *rows = told
        shares = {}
        for ranks, mask, cpus, memory, tasks, gres in rows:
            share = Share(int(mask, 16), cpus, memory, tasks, tuple(gres))
            shares.update(dict.fromkeys(ranks_of(ranks), share))
        return cls(dict(sorted(shares.items())), number)


def resources_of(shares: Mapping[int, Share], nodes: NodeTable) -> JobResources:
    """Return the shares, by index of the node, in the form of a select plugin."""
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
    """Return a select plugin's choice as shares, by index of the node, for a step holding all of the choice.

    `parts`: the needs of its tasks on each node; they supply the memory and devices that the plugin does not name.
    `memory`: MiB of a node without tasks.
    """
    shares = {}
    for index in chosen.node_bitmap.search(1):
        part = parts.get(index, Share(0, 0, memory, 0, ()))
        mask = nodes.cpu_mask(nodes[index], chosen.core_bitmap)
        held, gres = chosen.memory.get(index, 0) or part.memory, chosen.gres.get(index, ()) or part.gres
        shares[index] = Share(mask, chosen.cpus.get(index, 0), held, part.tasks, gres)
    return shares


def ranks_of(text: str) -> list[int]:
    """Return the numbers of a list such as `0-3,8`, which may name more ranks or tasks than CPUs. Raises ValueError."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        low, dash, high = part.partition("-")
        first, last = whole(low, _MOST_RANKS), whole(high if dash else low, _MOST_RANKS)
        if first is None or last is None or last < first:
            raise ValueError(f"no list of numbers: {text[:60]!r}")
        numbers += range(first, last + 1)
    return numbers
