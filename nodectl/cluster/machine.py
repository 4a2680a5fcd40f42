"""The description of an agent's machine, for the leader: CPUs, the CPUs given by Slurm, memory, devices.

The topology is described as in `nodectl.placement.machine`. The agent sends the description when it joins. The ten
thousand nodes of a cluster are of few kinds: equal machines become one value, so that code that compares nodes compares
kinds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.model.cpu_list import mask_of
from nodectl.model.number import whole
from nodectl.model.wire import lean_json
from nodectl.placement.binding.devices import visible
from nodectl.placement.machine.caches import Cache
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.topology import Board, CoreKind, NumaNode, Topology, assemble

_MOST = 999_999_999
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Machine:
    """A node's machine. `topology.usable` are the CPUs for steps; `memory` in MiB, 0 for unknown."""

    topology: Topology
    memory: int = 0
    devices: tuple[Device, ...] = ()


def given(
    topology: Topology, environ: Mapping[str, str], rank: int, devices: Sequence[Device] | None = None
) -> Machine:
    """Return the part of this machine given by Slurm to the job, on the node of rank `rank`.

    `environ` are the job's variables. Where Slurm gives fewer CPUs than it binds its processes to, the first of these
    CPUs count as given. `devices`: None where steps get no devices.
    """
    cpus = _of_node(environ.get("SLURM_JOB_CPUS_PER_NODE", ""), rank)
    usable = topology.usable
    if 0 < cpus < usable.bit_count():
        order = [cpu for cpu in topology.machine_of if usable >> cpu & 1]
        usable = mask_of(order[:cpus])
    memory = _figure(environ, "MEM_PER_NODE") or _figure(environ, "MEM_PER_CPU") * usable.bit_count()
    memory = memory or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
    return Machine(_with_usable(topology, usable), memory, () if devices is None else visible(devices, environ))


def _figure(environ: Mapping[str, str], name: str) -> int:
    """Return a figure of the job, 0 where there is none.

    The starter passes the figures on as NODECTL_ variables: srun would read Slurm's variables as options, and Slurm
    sets its own for the agents.
    """
    return whole(environ.get(f"NODECTL_{name}") or environ.get(f"SLURM_{name}", ""), _MOST) or 0


def _of_node(text: str, rank: int) -> int:
    """Return the figure of the node of this rank in a list like `4(x2),3`, 0 where there is none."""
    first = 0
    for word in text.split(","):
        figure, _, times = word.partition("(x")
        first += whole(times.rstrip(")"), _MOST) or 1
        if rank < first:
            return whole(figure, _MOST) or 0
    return 0


def _with_usable(topology: Topology, usable: int) -> Topology:
    if usable == topology.usable:
        return topology
    return _assembled({**_topology(topology), "usable": f"{usable:x}"})


def described(machine: Machine) -> dict[str, object]:
    """Return a machine as JSON values."""
    return {
        "topology": _topology(machine.topology),
        "memory": machine.memory,
        "devices": [
            [one.name, one.number, one.type, one.file, one.cores, f"{one.cpus:x}", one.also, one.id]
            for one in machine.devices
        ],
    }


def _topology(one: Topology) -> dict[str, object]:
    """Return a topology as JSON values, without amounts of memory.

    Machines of one kind differ a little in memory per NUMA node, and no placement depends on it.
    """
    return {
        "packages": [[socket.package, [core.cpus for core in socket.cores]] for socket in one.sockets],
        "nodes": [[node.number, f"{node.mask:x}"] for node in one.nodes],
        "caches": [[cache.level, cache.kind, cache.size, f"{cache.mask:x}"] for cache in one.caches],
        "boards": [f"{board.mask:x}" for board in one.boards],
        "kinds": [[kind.name, f"{kind.mask:x}"] for kind in one.kinds],
        "usable": f"{one.usable:x}",
        "usable_nodes": f"{one.usable_nodes:x}",
        "offline": f"{one.offline:x}",
        "isolated": f"{one.isolated:x}",
    }


class Machines:
    """A reader of descriptions. Equal machines become the same value."""

    def __init__(self) -> None:
        self._topologies: dict[str, Topology] = {}
        self._devices: dict[str, tuple[Device, ...]] = {}

    def read(self, told: Mapping[str, Any]) -> Machine:
        """Return the machine of a description. Raises ValueError where the description is malformed."""
        try:
            key = lean_json.dumps(told["topology"])
            topology = self._topologies.get(key)
            if topology is None:
                topology = self._topologies[key] = _assembled(told["topology"])
            key = lean_json.dumps(told["devices"])
            devices = self._devices.get(key)
            if devices is None:
                devices = self._devices[key] = tuple(map(_device, told["devices"]))
            return Machine(topology, int(told["memory"]), devices)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"no description of a machine: {error!r}") from None


def _device(row: Sequence[Any]) -> Device:
    name, number, kind, file, cores, cpus, also, called = row
    cores = None if cores is None else tuple(cores)
    return Device(name, number, kind, file, cores, int(cpus, 16), tuple(also), called)


def _assembled(told: Mapping[str, Any]) -> Topology:
    made = assemble(
        [(package, [tuple(cpus) for cpus in cores]) for package, cores in told["packages"]],
        nodes=[NumaNode(number, int(mask, 16), 0) for number, mask in told["nodes"]],
        caches=[Cache(level, kind, size, int(mask, 16)) for level, kind, size, mask in told["caches"]],
        boards=[Board(number, int(mask, 16)) for number, mask in enumerate(told["boards"])],
        kinds=[CoreKind(name, int(mask, 16)) for name, mask in told["kinds"]],
        usable=int(told["usable"], 16),
        usable_nodes=int(told["usable_nodes"], 16),
        offline=int(told["offline"], 16),
        isolated=int(told["isolated"], 16),
    )
    if not made.sockets or not made.usable:
        raise ValueError("a machine without a CPU that may be used")
    return made
