"""The nesting in the picture of a machine: boards, sockets, NUMA nodes and shared caches as a tree over the cores.

Which of them encloses which differs from machine to machine: a NUMA node may hold several sockets or a part of one, an
L3 cache may hold NUMA nodes or be held by one. Here the CPU sets alone decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nodectl.model.cpu_list import lowest
from nodectl.model.words import byte_words, count_words
from nodectl.placement.machine.caches import SHARED_LEVEL, Cache
from nodectl.placement.machine.pci import PciDevice
from nodectl.placement.machine.topology import Core, Topology

_KIND = {"Data": "d", "Instruction": "i"}


@dataclass(frozen=True, slots=True)
class Box:
    """A box of the picture.

    `what` is machine, board, socket, node or cache; `notes` are lines below the title; `cores` are the cores outside of
    the groups in `inside`.
    """

    what: str
    title: str
    mask: int
    notes: tuple[str, ...] = ()
    inside: tuple[Box, ...] = ()
    cores: tuple[Core, ...] = ()


def tree(topology: Topology, devices: Iterable[PciDevice] = ()) -> Box:
    """Return the machine as nested groups, in each group sorted by the lowest CPU."""
    devices = list(devices)
    groups = [Box("board", f"board {board.number}", board.mask) for board in topology.boards]
    groups = groups if len(groups) > 1 else []
    groups += [Box("socket", f"socket {socket.number}", socket.mask) for socket in topology.sockets]
    groups += [
        Box("node", f"NUMA node {node.number}{_size(node.memory)}", node.mask, device_notes(devices, node.number))
        for node in topology.nodes
        if node.mask
    ]
    groups += [Box("cache", cache_name(cache), cache.mask) for cache in topology.caches if cache.level >= SHARED_LEVEL]
    # Of equal sets the earlier in this list is outside: sort is stable.
    groups.sort(key=lambda group: -group.mask.bit_count())
    notes = [*_other_nodes(topology, devices), *_cache_sizes(topology), *device_notes(devices, -1)]
    return replace(_nest(groups, topology.cores), what="machine", title=headline(topology), notes=tuple(notes))


def headline(topology: Topology) -> str:
    """Return a line with the counts of the machine's parts."""
    counts = (
        (len(topology.boards) if len(topology.boards) > 1 else 0, "board"),
        (len(topology.sockets), "socket"),
        (len(topology.cores), "core"),
        (len(topology.machine_of), "CPU"),
        (len(topology.nodes), "NUMA node"),
    )
    words = ", ".join(count_words(count, noun) for count, noun in counts if count)
    return f"machine: {words}{_size(sum(node.memory for node in topology.nodes))}"


def cache_name(cache: Cache) -> str:
    """Return a cache in the usual notation: `L3 32 MiB`."""
    return f"L{cache.level}{_KIND.get(cache.kind, '')}{_size(cache.size).replace(',', '')}"


def device_notes(devices: Iterable[PciDevice], node: int) -> tuple[str, ...]:
    """Return a line for each kind of device on a NUMA node; -1 for devices on none."""
    names: dict[str, list[str]] = {}
    for device in devices:
        if device.node == node:
            names.setdefault(device.kind, []).append(" ".join(device.names) or device.address)
    return tuple(f"{kind}: {', '.join(found)}" for kind, found in names.items())


def _size(size: int) -> str:
    return f", {byte_words(size).replace('.0 ', ' ')}" if size else ""


def _nest(groups: Sequence[Box], cores: Sequence[Core]) -> Box:
    """Nest the groups, largest first, and put the cores into the groups.

    A group that lies across the border of a larger group is cut in two.
    """
    mask = 0
    for core in cores:
        mask |= core.mask
    inside = []
    left = list(groups)
    while left:
        outer, *others = left
        within = [replace(group, mask=group.mask & outer.mask) for group in others if group.mask & outer.mask]
        left = [replace(group, mask=group.mask & ~outer.mask) for group in others if group.mask & ~outer.mask]
        nested = _nest(within, [core for core in cores if core.mask & outer.mask])
        inside.append(replace(outer, inside=nested.inside, cores=nested.cores))
        mask &= ~outer.mask
    inside.sort(key=lambda group: lowest(group.mask))
    return Box("", "", mask, inside=tuple(inside), cores=tuple(core for core in cores if core.mask & mask))


def _other_nodes(topology: Topology, devices: Iterable[PciDevice]) -> list[str]:
    lines = []
    for node in topology.nodes:
        if not node.mask:
            lines += [f"NUMA node {node.number}{_size(node.memory)}, no CPUs", *device_notes(devices, node.number)]
    return lines


def _cache_sizes(topology: Topology) -> list[str]:
    """Return a line on all caches of known size, including caches too small to draw, for every kind of core."""
    core_of = {cpu: core.number for core in topology.cores for cpu in core.cpus}
    texts: dict[str, None] = {}
    shared: dict[tuple[str, int], None] = {}
    for cache in topology.caches:
        if cache.size:
            shared[cache_name(cache), cache.mask] = None
    for name, mask in shared:
        sharing = len({core_of[cpu] for cpu in _bits(mask)})
        texts[f"{name} {'a core' if sharing == 1 else f'for {sharing} cores'}"] = None
    return ["caches: " + ", ".join(texts)] if texts else []


def _bits(mask: int) -> Iterable[int]:
    while mask:
        yield lowest(mask)
        mask &= mask - 1
