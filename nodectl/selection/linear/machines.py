"""Resources of a table of whole nodes for a job: equal nodes are looked at once.

Pure but for the request of the job, which its details read once. For plugins that give whole nodes, in the daemon and
in planning commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bitarray import bitarray

from nodectl.model import device_part
from nodectl.placement.binding import devices
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.request import UNLIMITED, LayoutRequest
from nodectl.selection.cores import kept_cores
from nodectl.selection.linear.runs import Amounts
from nodectl.selection.records import JobDetails, NodeRecord, NodeTable

_FEW = 64  # kinds of nodes, of each of which a bitmap is kept
_PLENTY = 1 << 62


class Machines:
    """The nodes of a table by kind; nodes of a kind are equal."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self._kept = kept_cores(nodes)
        self._keeps_any = self._kept.any()
        self._memory = [node.real_memory - node.mem_spec_limit if node.real_memory else _PLENTY for node in nodes]
        self.weights = sorted({node.weight for node in nodes})
        self._lightest: dict[int, bitarray] = {}
        kinds: dict[object, int] = {}
        self._samples: list[NodeRecord] = []
        self._kind: list[int] = []
        for node in nodes:
            key = (id(node.config), node.reserved_cpus, node.devices)
            if key not in kinds:
                kinds[key] = len(kinds)
                self._samples.append(node)
            self._kind.append(kinds[key])
        self._cpus = [node.cpus for node in self._samples]
        self._threads = [node.config.threads_per_core for node in self._samples]
        few = range(len(kinds)) if len(kinds) <= _FEW else ()
        self._members = [bitarray(kind == number for kind in self._kind) for number in few]

    def cpus(self, node: int) -> int:
        """Return the CPUs of a node available to jobs, all of which go to a job on the whole node."""
        return self._cpus[self._kind[node]]

    def amounts(self) -> Amounts:
        """Return all CPUs of each node."""
        same = set(self._cpus)
        if len(same) <= 1:
            return Amounts(max(same, default=0))
        return Amounts(0, [self._cpus[kind] for kind in self._kind])

    def memory(self, node: int) -> int:
        """Return the MiB of a node available to jobs."""
        return self._memory[node]

    def lightest(self, weight: int) -> bitarray:
        """Return the nodes of no more than this weight."""
        if weight not in self._lightest:
            self._lightest[weight] = bitarray(node.weight <= weight for node in self.nodes)
        return self._lightest[weight]

    def useful(self, details: JobDetails) -> tuple[bitarray, Amounts]:
        """Return the nodes suitable for the job, and how many CPUs its tasks can use on each. Raises NoLayout."""
        kinds = zip(self._samples, self._cpus, self._threads, strict=True)
        counts = [_usable(node, cpus, threads, details) for node, cpus, threads in kinds]
        if self._members:
            useful = bitarray(len(self.nodes))
            for members, count in zip(self._members, counts, strict=True):
                if count:
                    useful |= members
        else:
            useful = bitarray(counts[kind] > 0 for kind in self._kind)
        different = {count for count in counts if count}
        if len(different) <= 1:
            return useful, Amounts(max(different, default=0))
        return useful, Amounts(0, [counts[kind] for kind in self._kind])

    def with_memory(self, wanted: Sequence[int], used: Mapping[int, int]) -> bitarray | None:
        """Return the nodes with enough memory for the job, `wanted` by kind of node; None for a job without memory."""
        if not any(wanted):
            return None
        pairs = zip(self._memory, self._kind, strict=True)
        fits = bitarray(memory >= wanted[kind] for memory, kind in pairs)
        for node, memory in used.items():
            if self._memory[node] - memory < wanted[self._kind[node]]:
                fits[node] = 0
        return fits

    def by_kind(self) -> list[int]:
        """Return the CPUs of each kind of node."""
        return self._cpus

    def without_cores_of(self, avail: bitarray, cores: bitarray) -> None:
        """Clear the bits of the nodes with a core in the core bitmap."""
        core, node = cores.find(1), 0
        while core >= 0:
            node = self._node_of(core, node)
            avail[node] = 0
            record = self.nodes[node]
            core = cores.find(1, record.core_offset + record.cores)

    def _node_of(self, core: int, low: int) -> int:
        high = len(self.nodes) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.nodes[middle].core_offset <= core else (low, middle - 1)
        return low

    def cores(self, chosen: bitarray) -> bitarray:
        """Return a core bitmap with all cores of the nodes available to jobs."""
        bits = bitarray(len(self._kept))
        for low, high in _runs(chosen):
            last: NodeRecord = self.nodes[high - 1]
            bits[self.nodes[low].core_offset : last.core_offset + last.cores] = 1
        return bits & ~self._kept if self._keeps_any else bits


def _runs(nodes: bitarray) -> Iterator[tuple[int, int]]:
    low = nodes.find(1)
    while low >= 0:
        high = nodes.find(0, low)
        high = len(nodes) if high < 0 else high
        yield low, high
        low = nodes.find(1, high)


def _usable(node: NodeRecord, cpus: int, most: int, details: JobDetails) -> int:
    """Return the CPUs of an empty node usable by the job's tasks; 0 where the node does not suit the job.

    `most`: threads of its cores.
    """
    if details.gres and whole_devices(node, details.gres, ()) is None:
        return 0
    request = details.request
    threads = _threads(most, request, details.cpus_per_task)
    if not threads:
        return 0
    free = node.config.usable & ~node.reserved_cpus
    if threads < most or request.cores_per_socket or request.sockets_per_node:
        cpus = _by_sockets(node, request, free, threads)
    if cpus < max(details.pn_min_cpus, request.mincpus or 0):
        return 0
    for tasks, places in ((request.ntasks_per_node, 1), (request.ntasks_per_socket, len(node.config.sockets))):
        if tasks and tasks != UNLIMITED:
            cpus = min(cpus, tasks * places * details.cpus_per_task)
    return cpus


def whole_devices(node: NodeRecord, gres: Mapping[str, int], taken: Iterable[str]) -> tuple[str, ...] | None:
    """Return the keys of devices of a node without those `taken`, the lowest numbers first; None for too few.

    A job that asks for a part of a device has all of it, as a job has all CPUs of its nodes.
    """
    loads = device_part.loads_of((key, device_part.ANYONE) for key in taken)
    keys: list[str] = []
    for asked in devices.of_gres(gres):
        try:
            held = devices.hold(node.devices, asked, loads, 0, node.config, entire=True)
        except NoLayout:
            return None
        keys += [device.key for device in held]
        loads |= device_part.loads_of((device.key, device_part.ANYONE) for device in held)
    return tuple(keys)


def _threads(threads: int, request: LayoutRequest, cpus_per_task: int) -> int:
    """Return the number of threads of a core usable by the job; 0 where the job wants more than there are."""
    asked, per_core = request.threads_per_core, request.ntasks_per_core
    if asked and asked != UNLIMITED:
        threads = asked if asked <= threads else 0
    if per_core and per_core != UNLIMITED:
        threads = min(threads, per_core * cpus_per_task)
    return threads


def _by_sockets(node: NodeRecord, request: LayoutRequest, free: int, threads: int) -> int:
    least = _number(request.cores_per_socket)
    sockets = cpus = 0
    for socket in node.config.sockets:
        counts = [min((core.mask & free).bit_count(), threads) for core in socket.cores if core.mask & free]
        if len(counts) >= least:
            sockets += 1
            cpus += sum(counts)
    return cpus if sockets >= _number(request.sockets_per_node) else 0


def _number(asked: int | None) -> int:
    """Return the requested minimum; 1 where nothing was requested."""
    return 1 if asked in (None, UNLIMITED) else int(asked or 1)
