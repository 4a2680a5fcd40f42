"""The agents of a step's nodes pass on what its MPI servers say: real servers, real sockets, no network between."""

from __future__ import annotations

import asyncio
import functools
import os
import select
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from nodectl.cluster.agent import exchange
from nodectl.cluster.agent.exchange import Exchange, Seat
from nodectl.model import mpi_frames as frames
from nodectl.mpi.others import Apart, Others

ENOUGH = 20.0  # seconds, for a machine that is busy
KEY = (7, 1)
FIRST = 5  # the rank of the step's first node


class Agent:
    """Of one rank. `net`: all of them; what is sent to one that is `cut` is lost."""

    def __init__(self, rank: int, net: dict[int, Agent], directory: Path) -> None:
        self.rank = rank
        self.cut = False
        self._net = net
        net[rank] = self
        self.crowded = False
        self.joined: list[int] = []
        self.exchange = Exchange(self, str(directory / f"{rank}"))
        self.exchange.open()

    def expect(self, node: int) -> None:
        self.exchange.expect(KEY, Seat(node, FIRST, lambda: self.joined.append(node)))

    def send(self, to: int, kind: str, header: Mapping[str, object], body: bytes = b"") -> None:
        other = self._net[to]
        if not self.cut and not other.cut:
            loop = asyncio.get_running_loop()
            loop.call_soon(other.exchange.handlers()[kind], self.rank, header, body)

    def send_each(self, kind: str, common: Mapping[str, object], each: Mapping[int, object], body: bytes = b"") -> None:
        for rank, part in each.items():
            self.send(rank, kind, {**common, "part": part}, body)

    def room(self, to: int) -> bool:
        del to
        return not self.crowded

    async def drained(self, to: int) -> None:
        del to
        while self.crowded:  # noqa: ASYNC110  # the test says when
            await asyncio.sleep(0.001)


class Server:
    """The MPI server of one node, in the test's loop."""

    def __init__(self, agent: Agent, node: int, count: int) -> None:
        self.gone: list[int] = []
        self.is_apart = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(agent.exchange.path)
        self._socket.sendall(frames.frame(node, frames.HELLO, b"7.1"))
        self.others = Others(self._socket.fileno(), node, count, self.gone.append)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)
        self.others.write()

    def _read(self) -> None:
        try:
            self.others.read()
            self.others.write()
        except Apart:
            self.is_apart = True
            self.close()

    def gather(self, data: bytes) -> list[bytes]:
        got: list[bytes] = []
        self.others.gather(data, got.append)
        self.others.write()
        return got

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()


Work = Callable[[list[Agent]], Awaitable[None]]


def staged(directory: Path, work: Work) -> None:
    """Three agents; the step's nodes are those of ranks 5, 3 and 4, in this order."""

    async def bounded() -> None:
        async with asyncio.timeout(ENOUGH):
            net: dict[int, Agent] = {}
            agents = [Agent(rank, net, directory) for rank in (FIRST, 3, 4)]
            await work(agents)
            for agent in agents:
                agent.exchange.close()

    asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # of what is looked at nobody tells
        await asyncio.sleep(0.001)


def has_ended(one: socket.socket) -> bool:
    """Whether its other end is closed, whatever has come from there."""
    poll = select.poll()
    poll.register(one, 0)
    return bool(poll.poll(0))


def begun(agents: list[Agent]) -> list[Server]:
    for node, agent in enumerate(agents):
        agent.expect(node)
    return [Server(agent, node, len(agents)) for node, agent in enumerate(agents)]


def test_servers_get_what_all_give(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        servers = begun(agents)
        for _ in range(3):
            got = [server.gather(b"%d" % node * 40_000) for node, server in enumerate(servers)]
            await until(functools.partial(all, got))
            assert got == [[b"0" * 40_000 + b"1" * 40_000 + b"2" * 40_000]] * 3
        assert [agent.joined for agent in agents] == [[0], [1], [2]]

    staged(tmp_path, work)


def test_the_first_node_may_be_the_last_to_begin(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        late, *early = agents
        for node, agent in enumerate(early, 1):
            agent.expect(node)
        servers = [Server(agent, node, 3) for node, agent in enumerate(early, 1)]
        got = [server.gather(b"x") for server in servers]
        await asyncio.sleep(0.05)
        late.expect(0)
        got.append(Server(late, 0, 3).gather(b"y"))
        await until(lambda: all(got))
        assert got == [[b"yxx"]] * 3

    staged(tmp_path, work)


def test_a_link_that_was_broken_costs_nothing_but_time(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        servers = begun(agents)
        agents[1].cut = True
        got = [server.gather(b"%d" % node) for node, server in enumerate(servers)]
        await asyncio.sleep(0.05)
        assert got == [[], [], []]
        agents[1].cut = False
        agents[0].exchange.resumed(agents[1].rank)
        agents[1].exchange.resumed(agents[0].rank)
        await until(lambda: all(got))
        assert got == [[b"012"]] * 3

    staged(tmp_path, work)


@pytest.mark.parametrize("node", [0, 1])
def test_the_end_of_a_server_is_told_to_all(tmp_path: Path, node: int) -> None:
    async def work(agents: list[Agent]) -> None:
        servers = begun(agents)
        got = [server.gather(b"") for server in servers]
        await until(lambda: all(got))
        servers[node].close()
        agents[node].exchange.part_over(KEY)
        left = [server for server in servers if server is not servers[node]]
        await until(lambda: all(server.gone == [node] for server in left))

    staged(tmp_path, work)


def test_who_speaks_to_a_part_that_is_over_is_told(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        agents[0].expect(0)
        agents[0].exchange.part_over(KEY)
        agents[1].expect(1)
        server = Server(agents[1], 1, 3)
        server.gather(b"")
        await until(lambda: server.gone == [0])

    staged(tmp_path, work)


def test_who_spoke_before_a_part_failed_is_told(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        agents[1].expect(1)
        server = Server(agents[1], 1, 3)
        server.gather(b"")
        await asyncio.sleep(0.05)
        agents[0].expect(0)
        agents[0].exchange.part_over(KEY)
        await until(lambda: server.gone == [0])

    staged(tmp_path, work)


def test_a_part_may_end_after_the_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of a node of the user's own closes its sockets first, and then its node ends the parts."""
    monkeypatch.setattr(exchange, "_PAUSE", 0)
    mistakes: list[object] = []

    async def work(agents: list[Agent]) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: mistakes.append(context))
        agents[1].expect(1)
        agents[1].exchange.close()
        agents[1].exchange.part_over(KEY)
        turn = loop.create_future()
        loop.call_later(exchange._PAUSE, turn.set_result, None)  # behind whatever `part_over` has put off
        await turn

    staged(tmp_path, work)
    assert not mistakes


@pytest.mark.parametrize("said", [b"\xff" * 64, frames.frame(0, frames.HELLO, b"7.2"), frames.frame(0, frames.DATA)])
def test_a_connection_that_names_no_step_of_here_is_closed(tmp_path: Path, said: bytes) -> None:
    async def work(agents: list[Agent]) -> None:
        agents[0].expect(0)
        reader, writer = await asyncio.open_unix_connection(agents[0].exchange.path)
        writer.write(said)
        assert await reader.read() == b""
        writer.close()

    staged(tmp_path, work)


def test_a_second_server_of_a_step_is_closed_and_the_first_goes_on(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        servers = begun(agents)
        got = [server.gather(b"a") for server in servers]
        await until(lambda: all(got))
        second = Server(agents[0], 0, 3)
        await until(lambda: second.is_apart)
        got = [server.gather(b"b") for server in servers]
        await until(lambda: all(got))

    staged(tmp_path, work)


def test_strangers_who_say_nothing_keep_nobody_out(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        agents[0].expect(0)
        silent = [await asyncio.open_unix_connection(agents[0].exchange.path) for _ in range(200)]
        agents[1].expect(1)
        servers = [Server(agents[0], 0, 2), Server(agents[1], 1, 2)]
        got = [server.gather(b"a") for server in servers]
        await until(lambda: all(got))
        for _, writer in silent:
            writer.close()

    staged(tmp_path, work)


def test_many_that_come_in_one_turn_of_the_loop_are_all_heard(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        joined: list[None] = []
        for step in range(100):
            agents[0].exchange.expect((7, step), Seat(0, FIRST, lambda: joined.append(None)))
        there = []
        for step in range(100):
            there.append(one := socket.socket(socket.AF_UNIX))
            one.connect(agents[0].exchange.path)
            one.sendall(frames.frame(0, frames.HELLO, b"7.%d" % step))
        await until(lambda: len(joined) == len(there))
        assert not any(map(has_ended, there))
        for one in there:
            one.close()

    staged(tmp_path, work)


def test_a_server_that_does_not_read_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_MOST_UNREAD", 1 << 20)

    async def work(agents: list[Agent]) -> None:
        agents[0].expect(0)
        stopped = socket.socket(socket.AF_UNIX)
        stopped.connect(agents[0].exchange.path)
        stopped.sendall(frames.frame(0, frames.HELLO, b"7.1"))
        await until(lambda: agents[0].joined)
        agents[1].expect(1)
        server = Server(agents[1], 1, 2)
        server.gather(bytes(4 << 20))
        while not has_ended(stopped):
            server.others.write()
            await asyncio.sleep(0.001)
        agents[0].exchange.part_over(KEY)
        await until(lambda: server.gone == [0])

    staged(tmp_path, work)


def test_nothing_more_is_read_from_a_server_while_the_way_is_crowded(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        servers = begun(agents)
        got = [server.gather(b"") for server in servers]
        await until(lambda: all(got))
        for agent in agents:
            agent.crowded = True
        got = [server.gather(bytes(8 << 20)) for server in servers]
        for _ in range(1000):  # of which less than 200 would do
            servers[1].others.write()
            await asyncio.sleep(0)
        assert servers[1].others.interest() & select.POLLOUT
        for agent in agents:
            agent.crowded = False
        while not all(got):
            for server in servers:
                server.others.write()
            await asyncio.sleep(0.001)

    staged(tmp_path, work)


def test_its_socket_is_its_users_alone(tmp_path: Path) -> None:
    async def work(agents: list[Agent]) -> None:
        assert os.stat(agents[0].exchange.path).st_mode & 0o777 == 0o600

    staged(tmp_path, work)
