"""What the client's agent and the nodes say of commands, without the agents between them: to pass it on is most of what
a command costs here.

Each message is made into bytes and read again. It costs either end what a socket costs, and is as late as the links on
its way are. What it takes here to carry it stands for its authentication. Not in it: the CPU of those who pass it on,
whom nothing else needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.scale.cluster import Cluster
from bench.scale.loop import Process
from nodectl.cluster import tree
from nodectl.model.wire import lean_json

Header = Mapping[str, Any]


class Shortcut:
    """In the mesh's place for the client's agent, of that rank, and for all nodes; all else goes over the mesh."""

    def __init__(self, cluster: Cluster, rank: int, hear: Callable[[int, Header, bytes], None]) -> None:
        self.rank = rank
        self._cluster = cluster
        self._mesh = cluster.meshes[rank]
        self._hear = hear
        # Of each rank, to the root.
        self._links = [len(list(tree.ancestors(of, cluster.settings.width))) for of in range(cluster.count)]
        for node in cluster.nodes.values():
            node.tell = self._tell

    def send(self, to: int, kind: str, header: Header, body: bytes = b"") -> None:
        if kind == "deal":
            self._carry(self.rank, to, header, self._cluster.nodes[to].deal)
        else:
            self._mesh.send(to, kind, header, body)

    def send_each(self, kind: str, common: Header, each: Mapping[int, object], body: bytes = b"") -> None:
        self._mesh.send_each(kind, common, each, body)

    def _tell(self, sender: int, header: Header) -> None:
        self._carry(sender, self.rank, header, self._hear)

    def _carry(self, sender: int, to: int, header: Header, hear: Callable[[int, Header, bytes], None]) -> None:
        data = lean_json.dumps(header)
        loop, network = self._cluster.loop, self._cluster.network
        loop.charge(network.costs.write + len(data) * network.costs.byte)
        process = self._cluster.agents[to]
        at = network.carry(self._cluster.agents[sender], process, len(data), loop.moment())
        at += network.latency * max(0, self._links[sender] + self._links[to] - 1)
        loop.kernel(at, loop.arrive, process, loop.handle(process, self._read, process, data, sender, hear))

    def _read(self, process: Process, data: str, sender: int, hear: Callable[[int, Header, bytes], None]) -> None:
        network = self._cluster.network
        self._cluster.loop.charge(network.costs.read + len(data) * network.costs.byte)
        network.received[process] = network.received.get(process, 0) + len(data)
        hear(sender, lean_json.load_object(data.encode("ascii")), b"")
