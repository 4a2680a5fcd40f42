"""Messages between members of a cluster: how many, how quickly, what each costs. All on loopback, in a chain, so that
what goes from the leader to the last passes two agents on its way.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.rows import Row
from nodectl.cluster import tree
from nodectl.cluster.mesh import envelope
from nodectl.cluster.mesh.mesh import LEADER, Header, Mesh, Settings

LAST = 2
SETTINGS = Settings(width=1)
NAMES = ["n0", "n1", "n2"]
SECRET = bytes(32)
MANY = 20_000
AT_ONCE = 500  # messages on their way
PARTS = 10_000
PART = {"nodeid": 1234, "ntasks": 16, "tasks": "19744-19759", "cpus": "ffffffffffffffff", "masks": ["ffffffff"] * 16}


async def follow(rank: int, port: int) -> None:
    """An agent that sends back what it gets. It ends with its stdin."""
    mesh = Mesh(rank, NAMES, SECRET, settings=SETTINGS)
    mesh.handle("there", lambda sender, header, body: mesh.send(sender, "back", header, body))
    if rank == tree.ROOT:
        print((await mesh.listen(["127.0.0.1"]))[0][1], flush=True)
    else:
        await mesh.join([("127.0.0.1", port)])
        print("joined", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    await ended.wait()
    await mesh.close()


class Agent:
    """One of them."""

    def __init__(self, rank: int, port: int) -> None:
        code = "import sys; sys.path.append(sys.argv[1]); import asyncio, bench.mesh as it; "
        words = [
            sys.executable,
            "-P",
            "-c",
            f"{code}asyncio.run(it.follow({rank}, {port}))",
            str(Path(__file__).parents[1]),
        ]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def cpu(self) -> float:
        """Seconds that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Echoes:
    """The leader's side: what it sends to the last one comes back."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.left = self.flying = 0
        self.at_once = 1
        self.body = b""
        self.done = asyncio.Event()
        mesh.handle("back", self._back)

    def _send(self) -> None:
        while self.left and self.flying < self.at_once:
            self.left -= 1
            self.flying += 1
            self.mesh.send(LAST, "there", {"job": 7, "step": self.left}, self.body)

    def _back(self, sender: int, header: Header, body: bytes) -> None:
        self.flying -= 1
        self._send()
        if not (self.left or self.flying):
            self.done.set()

    async def rounds(self, count: int, at_once: int, body: bytes = b"") -> float:
        """Seconds until all are back."""
        self.left, self.at_once, self.body = count, at_once, body
        self.done.clear()
        start = time.perf_counter()
        self._send()
        await self.done.wait()
        return time.perf_counter() - start


async def measured(port: int, agents: list[Agent]) -> list[Row]:
    leader = Mesh(LEADER, NAMES, SECRET, settings=SETTINGS)
    joined: set[int] = set()
    leader.on_joined(lambda rank, _: joined.add(rank))
    await leader.join([("127.0.0.1", port)])
    while len(joined) < len(NAMES):  # noqa: ASYNC110  # once
        await asyncio.sleep(0.01)
    echoes = Echoes(leader)
    await echoes.rounds(1000, 10)
    latency = statistics.median([await echoes.rounds(1, 1) for _ in range(300)])
    before = [agent.cpu() for agent in agents]
    taken = await echoes.rounds(MANY, AT_ONCE)
    cpu = [1e6 * (agent.cpu() - start) / (2 * MANY) for agent, start in zip(agents, before, strict=True)]
    size = 1 << 18
    streamed = await echoes.rounds(400, 8, bytes(size))
    await leader.close()
    return [
        Row("a message to an agent behind two others, and its answer", 1000 * latency, 0, "ms", 2),
        Row("messages a second, there and back over three links", 2 * MANY / taken, 0, "1/s", 10_000, more=True),
        Row("CPU of an agent that passes one message on", cpu[0], 0, "us", 60),
        Row("what passes two agents there and back", 2 * 400 * size / streamed / 2**20, 0, "MiB/s", 15, more=True),
    ]


def fan_out() -> list[Row]:
    """A start of 10,000 parts: made by the leader, and split by the root for its 16 children."""
    parts = dict.fromkeys(range(PARTS), PART)
    common = {"job": 7, "step": 1, "request": {"argv": ["true"], "environment": {f"V{n}": "x" * 40 for n in range(60)}}}
    start = time.process_time()
    payloads = envelope.each(LEADER, 1, "start", common, parts, b"")
    made = time.process_time() - start
    chains = {rank: (rank, *tree.ancestors(rank)) for rank in range(PARTS)}
    hops = {rank: chain[-2] if rank else 0 for rank, chain in chains.items()}
    start = time.process_time()
    out = [
        one for payload in payloads for several in envelope.split(payload, hops.__getitem__).values() for one in several
    ]
    split = time.process_time() - start
    size = sum(map(len, payloads)) / 2**20
    assert len(out) >= 17
    return [
        Row(f"a launch on {PARTS} nodes made into messages ({size:.1f} MiB)", 1000 * made, 0, "ms", 400),
        Row("the same split by the root for 16 children", 1000 * split, 0, "ms", 100),
    ]


def mesh() -> list[Row]:
    """All of them."""
    agents: list[Agent] = []
    try:
        agents.append(Agent(tree.ROOT, 0))
        port = int(agents[0].said)
        for rank in (1, LAST):
            agents.append(Agent(rank, port))
        return [*asyncio.run(measured(port, agents)), *fan_out()]
    finally:
        for agent in agents:
            agent.end()
