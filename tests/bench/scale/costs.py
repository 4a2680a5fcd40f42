"""What the simulation's modelled parts cost, measured on this machine: a socket's calls, a part on a real node's agent,
a command of bulk.

Run as a program it is the agent of one node, as whoever runs it, and not as root: `python costs.py DIRECTORY` writes
JSON to its standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.scale.network import Costs
from bench.scale.nodes import Habits, Launch
from nodectl.cluster.agent.calls import Calls
from nodectl.cluster.agent.exchange import Exchange
from nodectl.cluster.agent.node import OwnNode
from nodectl.cluster.agent.parts import Parts
from nodectl.cluster.leader.core import Core
from nodectl.cluster.leader.effects import SendEach
from nodectl.cluster.machine import Machine, described
from nodectl.placement.machine import topology

JOB = 4711
_NOBODY = 65534
_LAUNCHES = 120
_FIRST = 20  # which do not count: the node is still cold
_ROUNDS = 5000
_LARGE = 1 << 20
_COMMANDS = 1000
_WINDOW = 64
_LOOKED_AT = 8  # times, while these run


class Measured(NamedTuple):
    """`turn`: CPU of a turn of an event loop; `client`: of `nodectl bulk`, for one command."""

    sockets: Costs
    turn: float
    launches: list[Launch]
    command: float
    client: float

    def habits(self, slots: int, task: float) -> Habits:
        return Habits(self.launches, slots, self.command, task)

    def as_json(self) -> dict[str, Any]:
        return {
            "sockets": self.sockets._asdict(), "turn": self.turn, "command": self.command, "client": self.client,
            "launches": [list(one) for one in self.launches],
        }  # fmt: skip

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Measured:
        launches = [Launch(*one) for one in told["launches"]]
        return cls(Costs(**told["sockets"]), told["turn"], launches, told["command"], told["client"])


def measured() -> Measured:
    """All of it. Takes some seconds."""
    turn, sockets = asyncio.run(_sockets())
    launches, command = _node()
    return Measured(sockets, turn, launches, command, _CLIENT)


_CLIENT = 3e-5  # of `nodectl bulk` for one command, as ./dev bench measures it


class _Echo(asyncio.Protocol):
    """Sends back what comes, until it has been so often."""

    def __init__(self, left: int, done: asyncio.Future[None]) -> None:
        self._left = left
        self._done = done

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._left -= 1
        if self._left > 0:
            self._transport.write(data)
        elif not self._done.done():
            self._done.set_result(None)


async def _sockets() -> tuple[float, Costs]:
    """A message is a read, a write and a turn; the three are taken as equal. What is beside them is a few per cent."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    server = await loop.create_server(lambda: _Echo(_ROUNDS, done), "127.0.0.1", 0)
    at = server.sockets[0].getsockname()
    transport, _ = await loop.create_connection(lambda: _Echo(_ROUNDS, done), *at)
    begin = time.process_time()
    transport.write(b"x" * 100)
    await done
    each = (time.process_time() - begin) / (2 * _ROUNDS) / 3
    transport.close()
    begin = time.process_time()
    for _ in range(200):
        one, _ = await loop.create_connection(asyncio.Protocol, *at)
        one.abort()
        await asyncio.sleep(0)
    connection = (time.process_time() - begin) / 400
    server.close()
    return each, Costs(connection, each, each, _byte())


def _byte() -> float:
    """CPU of a byte that passes a socket, of either end."""
    one, other = socket.socketpair()
    data = bytes(_LARGE)
    begin = time.process_time()
    for _ in range(32):
        left = memoryview(data)
        while left:
            left = left[one.send(left[: 1 << 16]) :]
            other.recv(1 << 16)
    return (time.process_time() - begin) / (2 * 32 * _LARGE)


def _node() -> tuple[list[Launch], float]:
    """By an agent of its own, which must not be root."""
    directory = tempfile.mkdtemp(prefix="nodectl-scale-")
    who: dict[str, Any] = {}
    try:
        if os.geteuid() == 0:
            os.chown(directory, _NOBODY, _NOBODY)
            who = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        words = [sys.executable, "-P", str(Path(__file__).resolve()), directory]
        environment = {**os.environ, "HOME": directory, "XDG_RUNTIME_DIR": directory}
        done = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, check=True, env=environment, cwd="/", timeout=300, **who
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    told = json.loads(done.stdout)
    return [Launch(*one) for one in told["launches"]], told["command"]


class _Post:
    """In the mesh's place: what an agent sends, with its times."""

    def __init__(self) -> None:
        self.rank = 0
        self.begun = self.started = self.exited = self.ended = 0.0
        self.over: asyncio.Event = asyncio.Event()
        self.slots = 0
        self.work = 0
        self.error: object = None
        self._heard = 0

    def send(self, to: int, kind: str, header: Mapping[str, Any], body: bytes = b"") -> None:
        now = time.perf_counter()
        if kind == "begun":
            self.begun, self.error = now, header.get("error")
            if self.error:
                self.over.set()
        elif kind == "told":
            for event in header["events"]:
                if event["event"] == "start":
                    self.started = now
                elif event["event"] == "exit":
                    self.exited = now
        elif kind == "work":
            self._heard = int(header.get("n", self._heard))
            for event in header.get("say") or ():
                self.slots = self.slots or int(event.get("slots", 0))
                self.work += len(event.get("ended", ()))
            self.over.set()
        elif kind == "ended":
            self.ended = now
            self.over.set()

    def send_each(self, kind: str, common: Mapping[str, object], each: Mapping[int, object], body: bytes = b"") -> None:
        """Of a client's agent, which this is not."""


async def _agent(directory: str) -> dict[str, Any]:
    machine = Machine(topology.read(allowed=os.sched_getaffinity(0)), 1000)
    core = Core(JOB, ["here"], 0.0)
    core.joined(0, json.loads(json.dumps(described(machine))), 0.0)
    node = OwnNode(directory)
    await node.start()
    try:
        calls = Calls(node.socket)
        launches = [await _launch(core, calls, number) for number in range(_LAUNCHES)]
        command = await _commands(core, calls)
        calls.close()
    finally:
        await node.end()
    # Here are neighbours, which a node of an allocation has not.
    quick = sorted(launches[_FIRST:], key=lambda one: one.started)[: (_LAUNCHES - _FIRST) // 2]
    return {"launches": quick, "command": command}


def _order(core: Core, number: int, *, bulk: bool = False) -> dict[str, Any]:
    """The leader's for a step of one task there."""
    request: dict[str, Any] = {
        "argv": ["/bin/true"], "environment": {"PATH": os.defpath}, "cwd": "/", "ntasks": 1, "stdin": "none",
    }  # fmt: skip
    if bulk:
        request["bulk"] = True
    core.take()
    header = {"id": number, "method": "Launch", "parameters": {"request": request}, "streams": True}
    core.received("call", 0, header, 0.0)
    effects = core.take()
    start = next((one for one in effects if isinstance(one, SendEach) and one.kind == "start"), None)
    assert start is not None, effects
    return {**start.common, "part": start.each[0]}


def _ended(core: Core, number: int) -> None:
    record = {"state": "COMPLETED", "exit_status": 0, "tasks": []}
    core.received("ended", 0, {"job": JOB, "step": number, "record": record}, 0.0)


def _parts(post: _Post, calls: Calls) -> Parts:
    exchange = Exchange(post, "/nonexistent")  # type: ignore[arg-type]  # there is no MPI
    return Parts(post, "here", calls, "/nonexistent", exchange)


async def _launch(core: Core, calls: Calls, number: int) -> Launch:
    order = _order(core, number)
    post = _Post()
    parts = _parts(post, calls)
    cpu, begin = time.process_time(), time.perf_counter()
    parts.handlers()["start"](-1, order, b"")
    await asyncio.wait_for(post.over.wait(), 30)
    cpu = time.process_time() - cpu
    assert post.error is None, post.error
    parts.handlers()["over"](-1, order, b"")
    _ended(core, order["step"])
    return Launch(post.begun - begin, post.started - begin, post.ended - post.exited, cpu)


async def _commands(core: Core, calls: Calls) -> float:
    """Seconds of the node for one command of bulk, with one slot: of several looks the quickest."""
    order = _order(core, _LAUNCHES, bulk=True)
    post = _Post()
    parts = _parts(post, calls)
    parts.handlers()["start"](-1, order, b"")
    number = sent = 0
    key = {"job": order["job"], "step": order["step"]}

    async def heard() -> None:
        post.over.clear()
        await asyncio.wait_for(post.over.wait(), 30)

    def say(call: dict[str, Any]) -> None:
        nonlocal number
        number += 1
        parts.handlers()["deal"](0, {**key, "n": number, "heard": post._heard, "say": call}, b"")

    while not post.slots:
        await heard()
    looks = [(time.perf_counter(), 0)]
    while post.work < _COMMANDS:
        count = min(_WINDOW - (sent - post.work), _COMMANDS - sent)
        if count > _WINDOW // 4 or 0 < count == _COMMANDS - sent:
            commands = [
                {"seq": seq, "argv": ["/bin/true"], "stdout": "none", "stderr": "none"}
                for seq in range(sent, sent + count)
            ]
            sent += count
            say({"method": "Run", "parameters": {"commands": commands}})
        await heard()
        if post.work - looks[-1][1] >= _COMMANDS // _LOOKED_AT:
            looks.append((time.perf_counter(), post.work))
    taken = min((then - since) / (more - had) for (since, had), (then, more) in itertools.pairwise(looks))
    say({"method": "NoMore", "parameters": {}})
    while not post.ended:
        await heard()
    return taken


def told(one: Measured) -> list[str]:
    """In words."""
    begun, started, ended = (
        statistics.median(getattr(launch, name) for launch in one.launches) for name in ("begun", "started", "ended")
    )
    worst = max(launch.started for launch in one.launches)
    cpu = statistics.median(launch.cpu for launch in one.launches)
    return [
        f"a read or a write of a socket, or a turn of a loop: {1e6 * one.turn:.1f} us; a connection: "
        f"{1e6 * one.sockets.connection:.0f} us; a byte: {1e9 * one.sockets.byte:.2f} ns",
        f"a part on a node: begun after {1e3 * begun:.1f} ms, its tasks after {1e3 * started:.1f} ms (the "
        f"slowest of {len(one.launches)}: {1e3 * worst:.0f} ms), over {1e3 * ended:.1f} ms after these, "
        f"{1e3 * cpu:.2f} ms of the agent's CPU",
        f"a command of bulk: {1e3 * one.command:.2f} ms of its node's runner, {1e6 * one.client:.0f} us of the client",
    ]


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = asyncio.run(_agent(sys.argv[1]))
    sys.stdout.write(json.dumps(found))
