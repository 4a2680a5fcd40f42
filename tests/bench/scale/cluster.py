"""The whole cluster: an agent's mesh on every node, the leader's process beside the first one, clients."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from functools import partial

from bench.scale.loop import Loop, Process, played
from bench.scale.network import Costs, Network
from bench.scale.nodes import Habits, Node
from nodectl.cluster import tree
from nodectl.cluster.leader.journal import Journal
from nodectl.cluster.leader.main import Leader
from nodectl.cluster.machine import Machine, described
from nodectl.cluster.mesh.envelope import Message
from nodectl.cluster.mesh.mesh import LEADER, Mesh, Settings
from nodectl.model.wire import lean_json
from nodectl.placement.machine.spec import from_spec

JOB = 4711
_SECRET = bytes(range(32))
_SPEC, _MEMORY = "2s:32c:1t", 256_000
_PORT = 7000


class Cluster:
    """`count` nodes, which `grow` lets join."""

    def __init__(
        self, count: int, *, loop: Loop, costs: Costs | None = None, habits: Habits | None = None, journal: str = "",
        settings: Settings | None = None, latency: float = 5e-5, bandwidth: float = 1.25e9, spec: str = _SPEC,
    ) -> None:  # fmt: skip
        self.count = count
        self.loop = loop
        self.network = Network(loop, costs or Costs(), latency=latency, bandwidth=bandwidth)
        self.habits = habits or Habits()
        self.settings = settings or Settings()
        self.names = [f"n{rank:05d}" for rank in range(count)]
        self.said: Mapping[str, object] = lean_json.loads(lean_json.dumps(described(Machine(from_spec(spec), _MEMORY))))  # type: ignore[assignment]
        self.agents: list[Process] = []
        self.meshes: dict[int, Mesh] = {}
        self.nodes: dict[int, Node] = {}
        self.lost: dict[int, float] = {}  # when the leader heard of it
        self.joined = 0.0  # seconds until all had
        self.heard = 0  # messages that have come to the leader
        self._journal = journal
        self.leader: Leader
        self.leader_process = Process("leader", 0)

    def grow(self) -> float:
        """All join at once; the simulated seconds until the leader knows all."""
        for rank in range(self.count):
            process = Process(f"agent {rank}", rank)
            self.agents.append(process)
        joins = [played(self.loop, self.agents[0], self._listen)]
        joins += [played(self.loop, self.agents[rank], partial(self._join, rank)) for rank in range(1, self.count)]
        joins.append(played(self.loop, self.leader_process, self._lead))
        self.loop.run(over=self._knows_all)
        for join in joins:
            if join.done():
                join.result()
        self.quiet()
        return self.loop.time()

    def _knows_all(self) -> bool:
        return LEADER in self.meshes and not self.leader.core.books.expected

    def quiet(self) -> None:
        """What is there now is no garbage: nobody has to look through it again."""
        gc.freeze()

    def _agent(self, rank: int) -> Mesh:
        mesh = Mesh(rank, self.names, _SECRET, said=self.said, settings=self.settings)
        self.meshes[rank] = mesh
        self.nodes[rank] = Node(self.loop, mesh, self.names[rank], self.habits)
        return mesh

    async def _listen(self) -> None:
        await self._agent(0).listen([self.network.address(0)], _PORT)

    async def _join(self, rank: int) -> None:
        await self._agent(rank).join([(self.network.address(0), _PORT)])

    async def _lead(self) -> None:
        mesh = Mesh(LEADER, self.names, _SECRET, settings=self.settings)
        self.leader = Leader(mesh, JOB, self.names, Journal(self._journal, print) if self._journal else None)
        mesh.on_lost(self._note)
        self._count_messages(mesh)
        await mesh.join([(self.network.address(0), _PORT)])
        self.meshes[LEADER] = mesh

    def _note(self, rank: int, why: str) -> None:
        self.lost.setdefault(rank, self.loop.time())

    def _count_messages(self, mesh: Mesh) -> None:
        heard = mesh.message

        def counted(message: Message) -> None:
            self.heard += 1
            heard(message)

        mesh.message = counted  # type: ignore[method-assign]

    def crash(self, rank: int) -> None:
        """The node is gone, without a word."""
        self.network.crash(self.agents[rank])

    def kill(self, rank: int) -> None:
        """Its agent is killed."""
        self.network.kill(self.agents[rank])

    def depth(self) -> int:
        """Links between the root and the farthest rank."""
        return len(list(tree.ancestors(self.count - 1, self.settings.width)))

    def close(self) -> None:
        """Nothing of it is left."""
        self.leader.close()
        gc.unfreeze()
        self.loop.close()


def environment() -> dict[str, str]:
    """As large as that of a job's script."""
    return {f"VARIABLE_{number}": "x" * 40 for number in range(60)} | {"PATH": os.defpath}
