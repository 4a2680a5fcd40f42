"""A gateway of an agent, with a mesh that keeps what is sent, and those who stand before it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from nodectl.cluster.agent.calls import Calls
from nodectl.cluster.agent.gateway import Gateway
from nodectl.cluster.agent.hello import Hello
from nodectl.cluster.agent.launched import LaunchedSteps
from nodectl.cluster.agent.views import Views
from nodectl.cluster.tree import LEADER
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE
from nodectl.service.config_file.reader import load

ENOUGH = 20.0  # seconds, for a machine that is busy
REQUEST = {"argv": ["true"], "environment": {}, "cwd": "/", "ntasks": 2}


class Post:
    """A mesh that keeps what is sent."""

    rank = 3

    def __init__(self) -> None:
        self.sent: list[tuple[int, str, Mapping[str, Any], bytes]] = []

    def send(self, to: int, kind: str, header: Mapping[str, object], body: bytes = b"") -> None:
        self.sent.append((to, kind, header, body))

    def send_each(self, kind: str, common: Mapping[str, object], each: Mapping[int, object], body: bytes = b"") -> None:
        self.sent += [(to, kind, {**common, "part": part}, body) for to, part in each.items()]

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [header for _, sent, header, _ in self.sent if sent == kind]


class OfNoStep:
    """What is known of visitors: they are in no step."""

    async def held(self, _peer: framing.Peer, _method: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return parameters


class House:
    """A gateway, and who stands before it."""

    def __init__(self, place: Path) -> None:
        self.post = Post()
        self.launched = LaunchedSteps(self.post)
        self.path = str(place / "nodectl.sock")
        self.views = Views(self.post, Calls(str(place / "node.sock")))
        hello = Hello("n3", 7, 4, load("/nonexistent", must_exist=False))
        unconfined: Any = OfNoStep()
        self.gateway = Gateway(self.post, self.path, "/own/node", self.launched, self.views, hello, 4, unconfined)
        self.gateway.open()
        self.handlers = {**self.gateway.handlers(), **self.launched.handlers()}

    def visit(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.path)
        sock.setblocking(False)
        return sock

    def hear(self, kind: str, rank: int, header: Mapping[str, object], body: bytes = b"") -> None:
        self.handlers[kind](rank, header, body)

    async def asked(self, count: int = 1) -> Mapping[str, Any]:
        """The latest call of so many that the leader was asked."""
        await until(lambda: len(self.post.of("call")) >= count)
        return self.post.of("call")[-1]

    def launch(self, sock: socket.socket, fds: list[int], **more: object) -> None:
        framing.send(sock, {"method": f"{NODE}.Launch", "parameters": {"request": {**REQUEST, **more}}}, fds)

    async def begin(self, sock: socket.socket, fds: list[int], **more: object) -> tuple[int, int]:
        """Launches step 7.0: the client's ends of its pipes."""
        self.launch(sock, fds, **more)
        call = await self.asked()
        self.hear("reply", LEADER, {"id": call["id"], "parameters": {"job": 7, "step": 0, "ranks": "0-1"}})
        reply, (events, commands) = await received(sock)
        assert reply == {"parameters": {"job": 7, "step": 0}}
        return events, commands

    def say(self, *events: Mapping[str, object]) -> None:
        self.hear("event", LEADER, {"job": 7, "step": 0, "events": list(events)})


async def refused(house: House, sock: socket.socket) -> None:
    """A step has begun, and its client cannot have it."""
    call = await house.asked()
    house.hear("reply", LEADER, {"id": call["id"], "parameters": {"job": 7, "step": 0, "ranks": "0-1"}})
    answer, _ = await received(sock)
    assert answer is not None
    assert answer["error"] == f"{NODE}.LaunchRefused"
    assert house.post.of("order")[-1]["call"]["method"] == "hangup"
    house.hear("out", 1, {"job": 7, "step": 0, "fd": 1, "at": 0}, b"anybody?\n")
    assert house.post.of("more")[-1]["gone"]


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # of what is looked at nobody tells
        await asyncio.sleep(0.001)


async def received(sock: socket.socket) -> tuple[Mapping[str, Any] | None, list[int]]:
    """The next message, None at the end; and what came along."""
    inbox = framing.Inbox(1 << 20)
    while (message := inbox.next()) is None:
        try:
            if not inbox.receive(sock):
                return None, []
        except BlockingIOError:
            await asyncio.sleep(0.001)
        except ConnectionError:
            return None, []
    return message, inbox.take_descriptors()


async def read(fd: int) -> bytes:
    """What there is in a pipe, when there is something."""
    os.set_blocking(fd, False)
    while True:
        try:
            return os.read(fd, 65536)
        except BlockingIOError:
            await asyncio.sleep(0.001)


def visiting(place: Path, work: Callable[[House], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(ENOUGH):
            house = House(place)
            await work(house)
            house.gateway.close()

    asyncio.run(bounded())
