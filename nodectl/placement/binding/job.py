"""The decisions about a job independent of further jobs: fitting nodes, reserved CPUs, tasks, inherited variables.

A select plugin (`nodectl.selection`) chooses the job's nodes and cores. Pure functions.
"""

from __future__ import annotations

from nodectl.placement.binding.entries import shown
from nodectl.placement.binding.geometry import given, sockets_used, threads_used
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.request import Distribution, LayoutRequest, Settings
from nodectl.placement.machine.topology import Topology

NEVER = "Requested node configuration is not available"


def check_node(machine: Topology, request: LayoutRequest, settings: Settings, name: str) -> None:
    """Refuse a job if this node, even idle, lacks a resource wanted of each node. Raises NoLayout.

    Does not check whether the tasks fit.
    """
    check_names(request, (name,))
    if name in request.exclude:
        raise NoLayout(NEVER, "machine")
    if not (request.sockets_per_node or request.cores_per_socket or request.mincpus):
        return  # as for nearly every step
    wanted = LayoutRequest(
        sockets_per_node=request.sockets_per_node, cores_per_socket=request.cores_per_socket, mincpus=request.mincpus
    )
    threads = threads_used(machine.threads_per_core, wanted)
    away = specialised(machine, settings)
    free = [
        [mask for core in socket.cores if (mask := core.mask & machine.usable) and not core.mask & away]
        for socket in machine.sockets
    ]
    serve = sockets_used(list(map(len, free)), wanted)
    cpus = 0
    for masks, serves in zip(free, serve or (), strict=False):
        cpus += sum(min(mask.bit_count(), threads) for mask in masks) if serves else 0
    if cpus < max(request.mincpus or 0, 1):
        raise NoLayout(NEVER, "machine")


def check_names(request: LayoutRequest, names: tuple[str, ...] | list[str]) -> None:
    """Refuse unknown nodes, and nodes both wanted and excluded. Raises NoLayout."""
    known = set(names)
    unknown = [name for name in (*request.nodelist, *request.exclude) if name not in known]
    if unknown:
        raise NoLayout(f"Invalid node name specified: {shown(unknown[0])[1:-1]}", "node name")
    if not set(request.nodelist).isdisjoint(request.exclude):
        raise NoLayout(NEVER, "machine")


def tasks_of(request: LayoutRequest) -> int:
    """Return the number of tasks of a job with this request."""
    least = request.nodes[0] if request.nodes else max(len(set(request.nodelist)), 1)
    return request.ntasks or least * (request.ntasks_per_node or 1)


def specialised(machine: Topology, settings: Settings) -> int:
    """Return the mask of the CPUs reserved for the system.

    These are whole cores: the cores of `cpu_spec_list`, and `core_spec_count` cores from the highest on, one socket
    after the other.
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


def inherited(request: LayoutRequest, nodes: int) -> dict[str, str]:
    """Return the variables of a job's shell by which steps inherit the job's options."""
    variables = {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_NNODES": str(nodes)}
    ntasks = str(tasks_of(request))
    if request.ntasks or request.ntasks_per_node:
        variables |= {"SLURM_NTASKS": ntasks, "SLURM_NPROCS": ntasks}
    for name, value in (
        ("SLURM_CPUS_PER_TASK", request.cpus_per_task),
        ("SLURM_NTASKS_PER_NODE", request.ntasks_per_node),
        ("SLURM_THREADS_PER_CORE", given(request.threads_per_core)),
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
    """Return a distribution in the form of SLURM_DISTRIBUTION."""
    if not distribution.node:
        return "pack" if distribution.pack else "nopack"
    levels = [distribution.node, distribution.socket, distribution.core]
    text = ":".join(level for level in levels if level)
    return text if distribution.pack is None else f"{text},{'pack' if distribution.pack else 'nopack'}"
