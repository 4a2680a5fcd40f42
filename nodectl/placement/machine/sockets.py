"""A machine with a different number of sockets. A pure function, in any process and as any user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodectl.model.cpu_list import cpus_of
from nodectl.placement.machine.topology import Topology, assemble

if TYPE_CHECKING:
    from typing import Literal


def socket_as(topology: Topology, unit: Literal["l3", "numa"]) -> Topology:
    """Return the machine with each L3 cache, or each NUMA node, as a socket.

    These are SlurmdParameters l3cache_as_socket and numa_node_as_socket. Cores that are in no such
    unit stay together as a socket. The order of the cores, and so the abstract numbering, stays
    wherever the units lie within the sockets.
    """
    if unit == "l3":
        masks = [cache.mask for cache in topology.caches if cache.level == 3]
    else:
        masks = [node.mask for node in topology.nodes if node.mask]
    unit_of = {cpu: index for index, mask in enumerate(masks) for cpu in cpus_of(mask)}
    groups: dict[tuple[int, int], tuple[int, list[tuple[int, ...]]]] = {}
    for socket in topology.sockets:
        for core in socket.cores:
            index = unit_of.get(core.cpus[0])
            key = (socket.number, -1) if index is None else (-1, index)
            groups.setdefault(key, (socket.package, []))[1].append(core.cpus)
    return assemble(
        groups.values(),
        nodes=topology.nodes,
        caches=topology.caches,
        boards=topology.boards,
        kinds=topology.kinds,
        usable=topology.usable,
        usable_nodes=topology.usable_nodes,
        offline=topology.offline,
        isolated=topology.isolated,
    )
