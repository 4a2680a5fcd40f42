"""A job's allocation: which nodes, how many tasks on each, which cores.

The rules are those of Slurm's cons_tres with cores as the unit of allocation: a core belongs to one job, with all its
threads. Pure functions of machines, a request and what others hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodectl.binding.allocation import Allocation, NodeGrant
from nodectl.binding.entries import shown
from nodectl.binding.job_cores import FreeCore, block, capacity, cyclic, first
from nodectl.binding.refused import Refused
from nodectl.binding.request import BLOCK, PLANE, UNLIMITED, Distribution, Request, Settings
from nodectl.machine.topology import Topology

_NEVER = "Requested node configuration is not available"
_BUSY = "Requested nodes are busy"
_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class _Shape:
    """The request with its defaults. `size`: CPUs of a task, `cpus` of the job; `nodes`: at least, at most, 0 for no
    limit; `fewest`: rather than most; `limit`: tasks on a node at most, 0 for no limit.
    """

    ntasks: int
    size: int
    cpus: int
    nodes: tuple[int, int]
    fewest: bool
    limit: int


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a node can give the job: free cores by socket, threads used of each at most, CPUs in all."""

    node: int
    sockets: tuple[Sequence[FreeCore], ...]
    threads: int
    cpus: int


def allocate(
    machines: Sequence[Topology],
    request: Request,
    busy: Sequence[int] = (),
    settings: Settings = _DEFAULTS,
    names: Sequence[str] = (),
) -> Allocation:
    """Find nodes and cores for a job. `busy`: by machine, the mask of the CPUs that others hold; a core of which one
    CPU is busy is not free. `names`: of the machines, n1, n2, ... if not given. Raises Refused.
    """
    names = names or [f"n{number}" for number in range(1, len(machines) + 1)]
    if request.relative is not None:
        raise Refused("--relative option invalid for job allocation request")
    required, eligible = _nodes(request, names)
    shape = _shape(request, len(required))
    offers = {node: _offer(node, machines[node], 0, request, shape, settings) for node in eligible}
    if not _chosen(offers.values(), required, shape):
        raise Refused(_NEVER)
    if any(busy):
        held = dict(enumerate(busy))
        offers = {node: _offer(node, machines[node], held.get(node, 0), request, shape, settings) for node in eligible}
    chosen = _chosen(offers.values(), required, shape)
    if not chosen:
        raise Refused(_BUSY)
    tasks, cpus = _spread(chosen, shape, request)
    grants = []
    for index, offer in enumerate(chosen):
        cores = _cores(machines[offer.node], offer, cpus[index], request, settings)
        mask = 0
        for core in cores:
            mask |= core.mask
        grants.append(NodeGrant(offer.node, names[offer.node], mask, capacity([cores]), tasks[index]))
    return Allocation(
        tuple(grants),
        threads_per_core=_given(request.threads_per_core),
        environment=_inherited(request, shape, len(grants)),
    )


def check_node(machine: Topology, request: Request, settings: Settings, name: str) -> None:
    """Refuse what a job wants of each of its nodes and this one does not have, with nobody on it. Whether the tasks fit
    is not asked. Raises Refused.
    """
    _, eligible = _nodes(request, (name,))
    if eligible and not (request.sockets_per_node or request.cores_per_socket or request.mincpus):
        return  # as of nearly every step
    wanted = Request(
        sockets_per_node=request.sockets_per_node, cores_per_socket=request.cores_per_socket, mincpus=request.mincpus
    )
    shape = _Shape(ntasks=1, size=1, cpus=1, nodes=(1, 0), fewest=False, limit=0)
    if not eligible or not _offer(0, machine, 0, wanted, shape, settings).cpus:
        raise Refused(_NEVER)


def _given(number: int | None) -> int | None:
    return None if number == UNLIMITED else number


def _nodes(request: Request, names: Sequence[str]) -> tuple[list[int], list[int]]:
    """The nodes that must be in the job, and those that may be."""
    index = {name: node for node, name in enumerate(names)}
    unknown = [name for name in (*request.nodelist, *request.exclude) if name not in index]
    if unknown:
        raise Refused(f"Invalid node name specified: {shown(unknown[0])[1:-1]}")
    required = sorted({index[name] for name in request.nodelist})
    excluded = {index[name] for name in request.exclude}
    if excluded.intersection(required):
        raise Refused(_NEVER)
    return required, [node for node in range(len(names)) if node not in excluded]


def _shape(request: Request, required: int) -> _Shape:
    size = request.cpus_per_task or 1
    limit = request.ntasks_per_node or 0
    least, most = request.nodes or (max(required, 1), 0)
    ntasks = request.ntasks or least * (limit or 1)
    if request.nodes:
        # Fewer tasks than nodes: a node without a task is not asked for.
        least, most = max(min(least, ntasks), required), max(min(most, ntasks), required)
        if limit * least != ntasks:
            limit = 0
    elif limit:
        least = max(least, -(-ntasks // limit))
    cpus = ntasks * size
    if request.overcommit:
        # as if for one task a node, but not less than -B says
        cpus = max(least, (_given(request.cores_per_socket) or 1) * (_given(request.threads_per_core) or 1))
    return _Shape(ntasks, size, cpus, (least, most), request.use_min_nodes, limit)


def _offer(node: int, machine: Topology, busy: int, request: Request, shape: _Shape, settings: Settings) -> _Offer:
    """What the node has for this job; no CPU where it cannot be used."""
    threads = _threads(machine, request)
    nothing = _Offer(node, ((),) * len(machine.sockets), 1, 0)
    if not threads or (request.exclusive and busy):
        return nothing
    away = busy | specialised(machine, settings)
    least = _given(request.cores_per_socket) or 1
    sockets: list[Sequence[FreeCore]] = []
    for socket in machine.sockets:
        masks = [core.mask & machine.usable for core in socket.cores if not core.mask & away]
        free = [FreeCore(mask, min(mask.bit_count(), threads)) for mask in masks if mask]
        sockets.append(free if len(free) >= least else ())
    if sum(map(bool, sockets)) < (_given(request.sockets_per_node) or 1):
        return nothing
    per_socket = _given(request.ntasks_per_socket)
    useful = [first(free, per_socket * shape.size) for free in sockets] if per_socket else sockets
    cpus = capacity(useful)
    if cpus < max(request.mincpus or 0, shape.size, shape.limit * shape.size):
        return nothing
    return _Offer(node, tuple(sockets if request.exclusive else useful), threads, cpus)


def _threads(machine: Topology, request: Request) -> int:
    """How many threads of a core the job may use; 0 where it wants more than there are."""
    threads = machine.threads_per_core
    asked = _given(request.threads_per_core)
    per_core = _given(request.ntasks_per_core)
    if asked and asked > threads:
        return 0
    if per_core:
        threads = min(threads, per_core * (request.cpus_per_task or 1))
    return min(threads, asked) if asked else threads


def specialised(machine: Topology, settings: Settings) -> int:
    """The mask of the CPUs kept for the system: whole cores, those of `cpu_spec_list`, and `core_spec_count` cores from
    the highest on, one socket after the other.
    """
    mask = 0
    for core in machine.cores:
        if core.mask & settings.cpu_spec_list:
            mask |= core.mask
    rounds = max(len(socket.cores) for socket in machine.sockets)
    order = [
        socket.cores[-place]
        for place in range(1, rounds + 1)
        for socket in reversed(machine.sockets)
        if place <= len(socket.cores)
    ]
    for core in order[: settings.core_spec_count]:
        mask |= core.mask
    return mask


def _chosen(offers: Iterable[_Offer], required: Sequence[int], shape: _Shape) -> list[_Offer]:
    """As few nodes as give the job its CPUs, at least as many as asked for; none where they do not suffice."""
    usable = [offer for offer in offers if offer.cpus]
    must = [offer for offer in usable if offer.node in required]
    if len(must) < len(required):
        return []
    rest = [offer for offer in usable if offer.node not in required]
    least, most = shape.nodes
    if most and not shape.fewest:
        least = max(least, min(most, len(usable)))
    for order in (rest, sorted(rest, key=lambda offer: -offer.cpus)):
        chosen = list(must)
        for offer in order:
            if len(chosen) >= least and _room(chosen, shape) >= shape.cpus:
                break
            chosen.append(offer)
        if len(chosen) >= least and _room(chosen, shape) >= shape.cpus and not 0 < most < len(chosen):
            return sorted(chosen, key=lambda offer: offer.node)
    return []


def _room(offers: Iterable[_Offer], shape: _Shape) -> int:
    """CPUs of these nodes that whole tasks can use."""
    total = 0
    for offer in offers:
        tasks = offer.cpus // shape.size
        total += (min(tasks, shape.limit) if shape.limit else tasks) * shape.size
    return total


def _spread(offers: Sequence[_Offer], shape: _Shape, request: Request) -> tuple[list[int], list[int]]:
    """Tasks and CPUs of each node: one task each, then what makes begun cores full, then node by node."""
    floor = max(request.mincpus or 0, 1)
    total = shape.cpus if request.overcommit else max(shape.cpus, floor * len(offers)) // shape.size
    tasks = [1] * len(offers)
    left = total - len(offers)

    def fits(index: int, cpus: int) -> bool:
        return (tasks[index] + 1) * shape.size <= cpus and not 0 < shape.limit <= tasks[index]

    for begun_only in (True, False):
        for index, offer in enumerate(offers):
            begun = -(-tasks[index] * shape.size // offer.threads) * offer.threads
            while left > 0 and fits(index, min(begun, offer.cpus) if begun_only else offer.cpus):
                tasks[index] += 1
                left -= 1
    return tasks, [max(count * shape.size, floor) for count in tasks]


def _cores(machine: Topology, offer: _Offer, cpus: int, request: Request, settings: Settings) -> Sequence[FreeCore]:
    if request.exclusive:
        return [core for socket in offer.sockets for core in socket]
    if _fills_sockets(request.distribution, settings):
        return block(machine, offer.sockets, cpus)
    per_socket = _given(request.ntasks_per_socket) or 0
    return cyclic(offer.sockets, cpus, cpus_per_task=request.cpus_per_task or 1, per_socket=per_socket)


def _fills_sockets(distribution: Distribution | None, settings: Settings) -> bool:
    if distribution and distribution.node == PLANE:
        return True
    if distribution is None or distribution.socket is None:
        return settings.selects("cr_core_default_dist_block")
    return distribution.socket == BLOCK


def _inherited(request: Request, shape: _Shape, nodes: int) -> dict[str, str]:
    """The variables that a job's shell has for its steps to read."""
    variables = {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_NNODES": str(nodes)}
    if request.ntasks or request.ntasks_per_node:
        variables |= {"SLURM_NTASKS": str(shape.ntasks), "SLURM_NPROCS": str(shape.ntasks)}
    for name, value in (
        ("SLURM_CPUS_PER_TASK", request.cpus_per_task),
        ("SLURM_NTASKS_PER_NODE", request.ntasks_per_node),
        ("SLURM_THREADS_PER_CORE", _given(request.threads_per_core)),
    ):
        if value:
            variables[name] = str(value)
    if request.distribution:
        variables["SLURM_DISTRIBUTION"] = _written(request.distribution)
        if request.distribution.plane:
            variables["SLURM_DIST_PLANESIZE"] = str(request.distribution.plane)
    if request.overcommit:
        variables["SLURM_OVERCOMMIT"] = "1"
    return variables


def _written(distribution: Distribution) -> str:
    """A distribution as SLURM_DISTRIBUTION has it."""
    levels = [distribution.node or BLOCK, distribution.socket, distribution.core]
    text = ":".join(level for level in levels if level)
    return text if distribution.pack is None else f"{text},{'pack' if distribution.pack else 'nopack'}"
