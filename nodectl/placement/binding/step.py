"""The layout of a step within an allocation: nodes, tasks on the nodes, cores, the mask of each task."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.placement.binding import cores, memory, nodes, spread, task_masks
from nodectl.placement.binding.allocation import Allocation, NodeGrant
from nodectl.placement.binding.layout import Layout, MemPolicy, NodeShare, TaskPlace
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.reasons import Hardware
from nodectl.placement.binding.request import (
    ARBITRARY,
    BLOCK,
    CYCLIC,
    PLANE,
    UNLIMITED,
    Distribution,
    LayoutRequest,
    Settings,
)
from nodectl.placement.machine.sockets import socket_as
from nodectl.placement.machine.topology import Topology

_TOO_MANY = "More processors requested than permitted"
_OnNode = tuple[int, int, task_masks.Bound, list[MemPolicy | None]]


def place(
    machines: Sequence[Topology],
    allocation: Allocation,
    request: LayoutRequest,
    settings: Settings,
    *,
    reasons: bool = True,
) -> Layout:
    """Lay out the tasks of `request` within `allocation`. Raises NoLayout.

    With `reasons` each task has the reason for its mask; on a large machine this takes longer than everything else.
    """
    count, ntasks = nodes.wanted(allocation, request)
    grants = nodes.chosen(allocation, request, count)
    slots = _slots_of(machines, grants, request, allocation)
    if request.distribution and request.distribution.pack and not request.nodes:
        # Packed, a step takes no more nodes than it fills.
        count = next((few for few in range(1, count) if sum(slots[:few]) >= ntasks), count)
        grants, slots = grants[:count], slots[:count]
    node_level = _node_level(request.distribution, ntasks, count)
    counts, numbers = _spread(
        [max(slot, 1) for slot in slots], ntasks, node_level, request, grants, pack=settings.selects("cr_pack_nodes")
    )
    _check(counts, slots, grants, request)
    shares: list[NodeShare] = []
    places: list[TaskPlace] = []
    rules: list[str] = []
    alike: dict[tuple[int, int, int], _OnNode] = {}  # thousands of nodes are of a few kinds
    for grant, local in zip(grants, numbers, strict=True):
        if local:
            kind = id(machines[grant.node]), grant.cpus, len(local)
            found = alike.get(kind)
            if found is None:
                found = alike[kind] = _on_node(machines[grant.node], grant, len(local), request, settings)
            cpus, mems, bound, policies = found
            share = NodeShare(grant.node, cpus, mems, len(local), bound.told, bound.entries)
            shares.append(share)
            rules.append(bound.rule)
            hardware = Hardware(machines[grant.node]) if reasons else None
            for index, number in enumerate(local):
                # Whole NUMA nodes may be asked for; the step's cpuset is the bound.
                mask = bound.masks[index] & share.cpus
                cpus = mask or share.cpus
                why = f"{bound.rule}: {hardware.name(cpus)}" if hardware else ""
                places.append(TaskPlace(number, grant.node, index, mask, cpus, share.mems, policies[index], why))
    places.sort(key=lambda place: place.task)
    environment = _environment(request, shares, places, counts, node_level)
    if allocation.own and request.distribution is None:
        del environment["SLURM_DISTRIBUTION"]  # Slurm sets it only for a step in an existing job
    return Layout(tuple(places), tuple(shares), environment, "; ".join(dict.fromkeys(rules)))


def is_exact(request: LayoutRequest) -> bool:
    """Return True if the step gets no more cores than the tasks need. -c implies this, except with --overcommit."""
    if request.whole and request.exclusive:  # the whole machine, of a job of its own
        return False
    if request.whole:
        return False
    return request.exact or request.exclusive or (bool(request.cpus_per_task) and not request.overcommit)


def _node_level(distribution: Distribution | None, ntasks: int, count: int) -> str:
    if distribution and distribution.node:
        return distribution.node
    return CYCLIC if ntasks <= count else BLOCK


def _threads(machine: Topology, request: LayoutRequest, allocation: Allocation | None = None) -> int:
    """Return the number of threads used of each core. Raises NoLayout for more than the job has."""
    asked = request.threads_per_core
    if asked is None or asked == UNLIMITED:
        return machine.threads_per_core
    most = (allocation and allocation.threads_per_core) or machine.threads_per_core
    if asked > most:
        raise NoLayout("Cannot request more threads per core than the job allocation")
    return asked


def _slots_of(
    machines: Sequence[Topology], grants: Sequence[NodeGrant], request: LayoutRequest, allocation: Allocation
) -> list[int]:
    """Return the number of tasks with room on each node."""
    alike: dict[tuple[int, int, int], int] = {}
    slots = []
    for grant in grants:
        kind = id(machines[grant.node]), grant.cpus, grant.cpu_count
        if kind not in alike:
            alike[kind] = _slots(machines[grant.node], grant, request, allocation)
        slots.append(alike[kind])
    return slots


def _slots(machine: Topology, grant: NodeGrant, request: LayoutRequest, allocation: Allocation) -> int:
    """Return the number of tasks with room on a node."""
    threads = _threads(machine, request, allocation)
    held = sum(min(len(core.cpus), threads) for core in machine.cores if core.mask & grant.cpus)
    return min(held, grant.cpu_count) // (request.cpus_per_task or 1)


def _check(counts: list[int], slots: list[int], grants: Sequence[NodeGrant], request: LayoutRequest) -> None:
    """Refuse more tasks than a node has CPUs for. With overcommit, --exact still needs a CPU for each task."""
    most = slots
    if request.overcommit:
        most = [grant.cpus.bit_count() for grant in grants] if is_exact(request) else counts
    if any(count > limit for count, limit in zip(counts, most, strict=True)):
        raise NoLayout(_TOO_MANY)


def _spread(
    slots: list[int], ntasks: int, node_level: str, request: LayoutRequest, grants: Sequence[NodeGrant], *, pack: bool
) -> tuple[list[int], list[list[int]]]:
    """Return the number of tasks for each node, and the tasks' numbers. `pack`: the default of the configuration."""
    if node_level == ARBITRARY:
        place_of = {grant.name: index for index, grant in enumerate(grants)}
        numbers: list[list[int]] = [[] for _ in grants]
        for task, host in enumerate(request.hosts):
            numbers[place_of[host]].append(task)
        return [len(local) for local in numbers], numbers
    distribution = request.distribution or Distribution()
    if node_level == PLANE:
        counts = spread.planes(slots, ntasks, distribution.plane)
        return counts, spread.in_turn(counts, distribution.plane)
    if node_level == CYCLIC:
        # Slurm packs blocks only; in a cyclic step, Pack only reduces the number of nodes.
        counts = spread.evenly(slots, ntasks)
        return counts, spread.in_turn(counts)
    pack = pack if distribution.pack is None else distribution.pack
    counts = spread.packed(slots, ntasks) if pack else spread.evenly(slots, ntasks)
    return counts, spread.consecutive(counts)


def _on_node(machine: Topology, grant: NodeGrant, ntasks: int, request: LayoutRequest, settings: Settings) -> _OnNode:
    """Return the step's CPUs and NUMA nodes on a node, and the binding of the tasks there."""
    cpus = grant.cpus
    if is_exact(request):
        cpus = _own_cores(machine, grant, ntasks, request)
    bound = task_masks.bind(_as_bound(machine, settings), cpus, ntasks, request, settings)
    mems = 0
    for node in machine.nodes:
        mems |= 1 << node.number
    policies = memory.policies(machine, [mask or cpus for mask in bound.masks], request.mem_bind)
    return cpus, mems, bound, policies


def _own_cores(machine: Topology, grant: NodeGrant, ntasks: int, request: LayoutRequest) -> int:
    # Of unlike cores the smallest counts, so that the tasks fit on any of them.
    least = min(len(core.cpus) for core in machine.cores if core.mask & grant.cpus)
    threads = min(_threads(machine, request), least)
    size = request.cpus_per_task or 1
    everything = len(machine.cores)
    if ntasks == everything:
        return grant.cpus  # Slurm's: as many tasks as the node has cores get all that the job has there
    count = cores.needed(ntasks, size, threads, overcommit=request.overcommit)
    group = -(-size // threads) if size >= threads else 0
    if request.overcommit:
        group = 1
    return cores.pick(machine, grant.cpus, count, group, request.distribution)


def _as_bound(machine: Topology, settings: Settings) -> Topology:
    """Return the machine as the node sees it. The sockets may differ from the job's view."""
    if "l3cache_as_socket" in settings.slurmd_parameters:
        return socket_as(machine, "l3")
    if "numa_node_as_socket" in settings.slurmd_parameters:
        return socket_as(machine, "numa")
    return machine


def _environment(
    request: LayoutRequest, shares: list[NodeShare], places: list[TaskPlace], counts: list[int], node_level: str
) -> dict[str, str]:
    """Return Slurm's variables for task 0."""
    first = next(share for share in shares if share.node == places[0].node)
    verbosity = "verbose" if request.cpu_bind and request.cpu_bind.verbose else "quiet"
    variables = {
        "SLURM_NTASKS": str(len(places)),
        "SLURM_TASKS_PER_NODE": spread.tasks_per_node(counts),
        "SLURM_CPUS_ON_NODE": str(first.cpus.bit_count()),
        "SLURM_DISTRIBUTION": _distribution(request.distribution, node_level),
        "SLURM_GTIDS": ",".join(str(place.task) for place in places if place.node == first.node),
        "SLURM_CPU_BIND": f"{verbosity},{first.bind_type}{first.bind_list}",
        "SLURM_CPU_BIND_LIST": first.bind_list,
        "SLURM_CPU_BIND_TYPE": first.bind_type,
        "SLURM_CPU_BIND_VERBOSE": verbosity,
    }
    if request.distribution and request.distribution.plane:
        variables["SLURM_DIST_PLANESIZE"] = str(request.distribution.plane)
    if request.cpus_per_task is not None:
        variables["SLURM_CPUS_PER_TASK"] = str(request.cpus_per_task)
    if request.overcommit:
        variables["SLURM_OVERCOMMIT"] = "1"
    if request.ntasks_per_node:
        variables["SLURM_NTASKS_PER_NODE"] = str(request.ntasks_per_node)
    if request.threads_per_core not in (None, UNLIMITED):
        variables["SLURM_THREADS_PER_CORE"] = str(request.threads_per_core)
    return variables | memory.environment(request.mem_bind)


def _distribution(distribution: Distribution | None, node_level: str) -> str:
    """Return SLURM_DISTRIBUTION: the levels as given, the first level as decided."""
    if distribution is None:
        return node_level
    if not distribution.node:
        return "pack" if distribution.pack else "nopack"
    levels = [distribution.socket, distribution.core]
    while levels and levels[-1] is None:
        levels.pop()
    text = ":".join([node_level, *(level or CYCLIC for level in levels)])
    return text + {None: "", True: ",pack", False: ",nopack"}[distribution.pack]
