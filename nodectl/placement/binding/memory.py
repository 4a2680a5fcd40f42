"""Memory policies of a node's tasks, from --mem-bind."""

from __future__ import annotations

from nodectl.placement.binding import mem_bind as words
from nodectl.placement.binding.entries import without_prefix
from nodectl.placement.binding.layout import BIND, PREFERRED, MemPolicy
from nodectl.placement.binding.mem_bind import MemBind
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.machine.topology import Topology


def policies(machine: Topology, masks: list[int], asked: MemBind | None) -> list[MemPolicy | None]:
    """Return the memory policy of each task; `masks`: the CPUs of each task.

    Raises NoLayout for an unknown NUMA node.
    """
    if asked is None or asked.mode in ("", words.NONE):
        return [None] * len(masks)
    nodes = {node.number: node.mask for node in machine.nodes}
    local = {mask: sum(1 << number for number, cpus in nodes.items() if cpus & mask) for mask in set(masks)}
    found: list[MemPolicy | None] = []
    for task, mask in enumerate(masks):
        if asked.mode == words.LOCAL:
            wanted = local[mask]
        elif asked.mode == words.RANK:
            wanted = 1 << task % max(len(machine.machine_of), 1)
        else:
            entry = asked.entries[task % len(asked.entries)]
            wanted = entry if asked.mode == words.MASK else 1 << entry
        rest = wanted
        while rest:
            number = (rest & -rest).bit_length() - 1
            rest &= rest - 1
            if number not in nodes:
                raise NoLayout(
                    f"NUMA node {number} does not exist; cannot bind local task {task} to it (--mem-bind={asked.mode})"
                )
        found.append(MemPolicy(PREFERRED, wanted & -wanted) if asked.prefer else MemPolicy(BIND, wanted))
    return found


def environment(asked: MemBind | None) -> dict[str, str]:
    """Return the variables about memory binding; none without a request."""
    if asked is None:
        return {}
    verbosity = "verbose" if asked.verbose else "quiet"
    listed = without_prefix(asked.listed) if asked.mode == words.MASK else asked.listed
    kind = asked.mode + (":" if asked.mode in (words.MAP, words.MASK) else "")
    return {
        "SLURM_MEM_BIND": f"{verbosity},{'prefer,' if asked.prefer else ''}{kind}{listed}",
        "SLURM_MEM_BIND_LIST": listed,
        "SLURM_MEM_BIND_TYPE": kind,
        "SLURM_MEM_BIND_VERBOSE": verbosity,
        "SLURM_MEM_BIND_PREFER": "prefer" if asked.prefer else "",
        "SLURM_MEM_BIND_SORT": "sort" if asked.sort else "",
    }
