"""Commands on a node: `nodectl run` and `nodectl bulk` as the agent there sees them. What the agent does for them is
the real code of `nodectl.cluster.agent`, and so are pipes; the commands themselves cost CPU as measured.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from bench.scale.cluster import Cluster, environment
from bench.scale.loop import Process
from bench.scale.shortcut import Shortcut
from nodectl.cluster.agent.launched import LaunchedSteps
from nodectl.cluster.agent.messages import Reader, Writer
from nodectl.cluster.agent.post import Post
from nodectl.cluster.leader.holding import ranks_of
from nodectl.cluster.mesh.mesh import LEADER
from nodectl.model.wire.names import STEP

_LONGEST = 64 << 20
_AT_ONCE = 500  # commands in one message: 48 KiB, as bulk/wire.py has it
_AGAIN = 0.001
_LONG = 1 << 30


class Gateway:
    """At a node's agent: launches on behalf of commands there. `is_short`: what is said of commands of bulk takes a
    shortcut.
    """

    def __init__(self, cluster: Cluster, rank: int, *, is_short: bool = False) -> None:
        self._cluster = cluster
        self._mesh = cluster.meshes[rank]
        self.post: Post = Shortcut(cluster, rank, self._work) if is_short else self._mesh
        self._count = 0
        self._replies: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self.agent = cluster.agents[rank]
        self.launched: LaunchedSteps
        cluster.loop.within(self.agent, self._begin)

    def _begin(self) -> None:
        self.launched = LaunchedSteps(self.post)
        for kind, handler in {**self.launched.handlers(), "reply": self._reply}.items():
            self._mesh.handle(kind, handler)

    def _reply(self, sender: int, header: Mapping[str, Any], body: bytes) -> None:
        self._replies.pop(int(header["id"])).set_result(header)

    def _work(self, sender: int, header: Mapping[str, Any], body: bytes) -> None:
        self.launched.handlers()["work"](sender, header, body)

    async def launch(self, request: Mapping[str, Any]) -> tuple[int, list[int]]:
        """The step's number, and the command's ends of two pipes."""
        self._count += 1
        number = self._count
        self._replies[number] = self._cluster.loop.create_future()
        header = {"id": number, "method": "Launch", "parameters": {"request": request}, "streams": True}
        self._mesh.send(LEADER, "call", header)
        reply = await self._replies[number]
        if "error" in reply:
            raise RuntimeError(str(reply["parameters"]))
        told = reply["parameters"]
        streams = [os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) for _ in range(3)]
        key = int(told["job"]), int(told["step"])
        theirs = self.launched.add(key, streams, ranks_of(told["ranks"]), reads=False, bulk=bool(request.get("bulk")))
        return key[1], theirs


def request(nodes: int, tasks: int, *, bulk: bool = False) -> dict[str, Any]:
    """A launch, as a client sends it."""
    asked: dict[str, Any] = {
        "argv": ["true"], "environment": environment(), "cwd": "/", "ntasks": tasks, "stdin": "none", "no_kill": True,
        "layout": {"nodes": str(nodes)},
    }  # fmt: skip
    return {**asked, "bulk": True} if bulk else asked


class Step:
    """`nodectl run`, from its call to the step's end. Times are simulated seconds."""

    def __init__(self, gateway: Gateway, cluster: Cluster, nodes: int, tasks: int) -> None:
        self._loop = cluster.loop
        self.called = self.began = self.started = self.ended = 0.0
        self.record: Mapping[str, Any] = {}
        self._gateway = gateway
        self._request = request(nodes, tasks)
        self._process = Process("nodectl run", gateway.agent.node)

    async def run(self) -> None:
        self.called = self._loop.time()
        _, theirs = await self._gateway.launch(self._request)
        self.began = self._loop.time()
        self._loop.within(self._process, self._read, theirs)

    def _read(self, theirs: list[int]) -> None:
        Writer(theirs[1], _LONG, lambda: None)
        Reader(theirs[0], _LONGEST, self._take, lambda: None)

    def _take(self, messages: list[Mapping[str, Any]]) -> None:
        for message in messages:
            event = message["parameters"]["event"]
            if event["event"] == "start":
                self.started = self._loop.time()
            elif event["event"] == "end":
                self.ended = self._loop.time()
                self.record = event["record"]


class Bulk:
    """`nodectl bulk` with so many commands. `command`: its own CPU for each, in seconds."""

    def __init__(self, gateway: Gateway, cluster: Cluster, nodes: int, slots: int, total: int, command: float) -> None:
        self._loop = cluster.loop
        self._gateway = gateway
        self._request = request(nodes, nodes * slots, bulk=True)
        self._command = command
        self._total = total
        self.window = self.sent = self.over = 0
        self.bytes = 0
        self.process = Process("nodectl bulk", gateway.agent.node)
        self.began = self.ended = 0.0
        self.record: Mapping[str, Any] = {}
        self._said_all = self._waits = False
        self._writer: Writer

    async def run(self) -> None:
        _, theirs = await self._gateway.launch(self._request)
        self.began = self._loop.time()
        self._loop.within(self.process, self._read, theirs)

    def _read(self, theirs: list[int]) -> None:
        self._writer = Writer(theirs[1], _LONG, lambda: None)
        Reader(theirs[0], _LONGEST, self._take, lambda: None)

    def _take(self, messages: list[Mapping[str, Any]]) -> None:
        for message in messages:
            event = message["parameters"]["event"]
            if event["event"] == "start":
                self.window = event["window"]
            elif event["event"] == "end":
                self.ended = self._loop.time()
                self.record = event["record"]
            self.over += len(event.get("ended", ()))
            self._loop.charge(self._command * len(event.get("ended", ())))
        self._fill()

    def _fill(self) -> None:
        if self._waits or self._said_all:
            return
        room = min(self.window - (self.sent - self.over), self._total - self.sent)
        if room >= min(_AT_ONCE, self._total - self.sent) and room > 0:
            count = min(room, _AT_ONCE)
            words = ["./analyse", "--seed"]
            commands = [
                {"seq": seq, "argv": [*words, str(seq)], "stdout": "none", "stderr": "none"}
                for seq in range(self.sent, self.sent + count)
            ]
            self.sent += count
            self._writer.send({"method": f"{STEP}.Run", "parameters": {"commands": commands}, "oneway": True})
        elif self.sent == self._total and self.window:
            self._said_all = True
            self._writer.send({"method": f"{STEP}.NoMore", "parameters": {}, "oneway": True})
            return
        else:
            return
        self._waits = True
        self._loop.call_later(_AGAIN if self._writer._out else 0.0, self._go_on)

    def _go_on(self) -> None:
        """A pipe that is full makes it wait, as a write that blocks."""
        self._waits = False
        if self._writer._out:
            self._waits = True
            self._loop.call_later(_AGAIN, self._go_on)
        else:
            self._fill()
