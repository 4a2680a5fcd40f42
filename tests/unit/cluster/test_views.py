"""Viewers of a step over several nodes: what comes together, links that break, and who leaves."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from nodectl.client.command import Failed
from nodectl.cluster.agent.views import Views
from nodectl.model.wire import terminal_packets as packets

ENOUGH = 20.0  # seconds, for a machine that is busy
VIEWER = 9


class Post:
    """The way from one agent to the others."""

    def __init__(self, stage: Stage, rank: int) -> None:
        self.rank = rank
        self._stage = stage

    def send(self, to: int, kind: str, header: Mapping[str, object], body: bytes = b"") -> None:
        if self._stage.cut:
            return
        views = self._stage.views.get(to)
        if views is not None:
            asyncio.get_running_loop().call_soon(views.handlers()[kind], self.rank, header, body)

    def send_each(self, kind: str, common: Mapping[str, object], each: Mapping[int, object], body: bytes = b"") -> None:
        raise AssertionError("nothing of a view goes to many")


class Calls:
    """A node's daemon. `shows`: the other end of what it shows, once it was asked."""

    def __init__(self, terminal: int | None = None, refuses: str = "") -> None:
        self._answer = {"ntasks": 1} if terminal is None else {"ntasks": 1, "terminal": terminal}
        self._refuses = refuses
        self.shows: socket.socket | None = None

    async def ask(self, method: str, parameters: Mapping[str, object]) -> tuple[Mapping[str, Any], list[int]]:
        assert (method, parameters) == ("View", {"job": 7, "step": 3})
        if self._refuses:
            raise Failed(self._refuses, 1, "org.nodectl.WrongState")
        self.shows, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return self._answer, [theirs.detach()]


class Stage:
    """Nodes 0, 1, ... and a viewer elsewhere. `cut`: what is sent is lost."""

    def __init__(self, *nodes: Calls) -> None:
        self.cut = False
        self.nodes = nodes
        everybody: dict[int, Any] = {**dict(enumerate(nodes)), VIEWER: Calls()}
        self.views = {rank: Views(Post(self, rank), calls) for rank, calls in everybody.items()}
        self.answer: Mapping[str, Any] = {}
        self.sock: socket.socket | None = None

    async def open(self) -> socket.socket | None:
        came = asyncio.Event()

        def answer(reply: Mapping[str, object], fds: list[int]) -> None:
            self.answer = reply
            self.sock = socket.socket(fileno=os.dup(fds[0])) if fds else None
            for fd in fds:
                os.close(fd)
            came.set()

        self.views[VIEWER].open((7, 3), list(range(len(self.nodes))), answer)
        await asyncio.wait_for(came.wait(), ENOUGH)
        return self.sock

    def show(self, rank: int, data: bytes) -> None:
        node = self.nodes[rank].shows
        assert node is not None
        node.send(packets.packet(packets.OUT, data, rank))

    async def read(self) -> tuple[bytes, int, bytes]:
        """The next packet that the viewer is shown; an empty one at the end."""
        assert self.sock is not None
        return packets.split(await self._received(self.sock))

    @staticmethod
    async def _received(sock: socket.socket) -> bytes:
        sock.setblocking(False)
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1 << 17), ENOUGH)

    async def typed(self, rank: int) -> bytes:
        """What a node is given."""
        node = self.nodes[rank].shows
        assert node is not None
        return await self._received(node)

    def mend(self) -> None:
        self.cut = False
        for rank, views in self.views.items():
            for other in self.views.keys() - {rank}:
                views.resumed(other)


def played(*nodes: Calls) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    def run(play: Callable[[Stage], Awaitable[None]]) -> None:
        async def whole() -> None:
            stage = Stage(*nodes)
            await play(stage)
            for views in stage.views.values():
                views.close()

        asyncio.run(whole())

    return run


def test_what_all_nodes_show_comes_together_and_ends_with_the_last() -> None:
    async def play(stage: Stage) -> None:
        await stage.open()
        assert stage.answer == {"parameters": {}}
        for rank in (1, 0, 1):
            stage.show(rank, b"from %d" % rank)
            assert await stage.read() == (packets.OUT, rank, b"from %d" % rank)
        for node in stage.nodes:
            stage.show(stage.nodes.index(node), b"last")
            assert node.shows is not None
            node.shows.close()
        assert sorted([await stage.read(), await stage.read()]) == [
            (packets.OUT, 0, b"last"),
            (packets.OUT, 1, b"last"),
        ]
        assert await stage.read() == (b"", 0, b"")

    played(Calls(), Calls())(play)


def test_what_is_typed_goes_to_the_terminal_and_what_cannot_be_seen_is_left_out() -> None:
    async def play(stage: Stage) -> None:
        sock = await stage.open()
        assert stage.answer == {"parameters": {"terminal": 5}}
        assert sock is not None
        sock.send(packets.packet(packets.INPUT, b"keys"))
        assert await stage.typed(1) == packets.packet(packets.INPUT, b"keys")

    played(Calls(refuses="no terminal here"), Calls(terminal=5))(play)


def test_where_nothing_can_be_seen_the_first_reason_is_told() -> None:
    async def play(stage: Stage) -> None:
        assert await stage.open() is None
        assert stage.answer["error"] == "org.nodectl.WrongState"
        assert stage.answer["parameters"]["reason"] == "its streams are its client's own"

    played(*[Calls(refuses="its streams are its client's own")] * 2)(play)


@pytest.mark.parametrize("many", [1, 100])
def test_what_a_broken_link_has_lost_is_shown_once_and_in_order(many: int) -> None:
    async def play(stage: Stage) -> None:
        sock = await stage.open()
        assert sock is not None
        stage.cut = True
        for number in range(many):
            stage.show(0, b"%d" % number)
        sock.send(packets.packet(packets.INPUT, b"keys"))
        for _ in range(10):
            await asyncio.sleep(0)
        stage.mend()
        assert [(await stage.read())[2] for _ in range(many)] == [b"%d" % number for number in range(many)]
        assert await stage.typed(0) == packets.packet(packets.INPUT, b"keys")

    played(Calls(terminal=0))(play)


def test_a_question_that_was_lost_with_a_link_is_asked_again() -> None:
    async def play(stage: Stage) -> None:
        stage.cut = True
        opening = asyncio.ensure_future(stage.open())
        await asyncio.sleep(0)
        stage.mend()
        assert await opening is not None

    played(Calls())(play)


def test_a_viewer_that_leaves_is_not_shown_anything_more() -> None:
    async def play(stage: Stage) -> None:
        sock = await stage.open()
        assert sock is not None
        sock.close()
        for rank in range(2):
            assert await stage.typed(rank) == b""

    played(Calls(), Calls())(play)


def test_a_node_that_is_lost_is_told_and_the_others_go_on() -> None:
    async def play(stage: Stage) -> None:
        await stage.open()
        stage.views[VIEWER].lost(0, "node n0 was lost")
        assert await stage.read() == (packets.NOTE, 0, b"node n0 was lost")
        stage.show(1, b"on")
        assert await stage.read() == (packets.OUT, 1, b"on")
        stage.views[VIEWER].lost(1, "node n1 was lost")
        assert (await stage.read())[0] == packets.NOTE
        assert await stage.read() == (b"", 0, b"")
        stage.views[1].lost(VIEWER, "its node")
        assert await stage.typed(1) == b""

    played(Calls(), Calls())(play)
