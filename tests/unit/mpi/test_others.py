"""What the MPI servers of a step's nodes give each other, over agents that may lose what is on its way."""

from __future__ import annotations

import contextlib
import os
import select
import socket

import pytest

from nodectl.model import mpi_frames as frames
from nodectl.mpi import others
from nodectl.mpi.others import Apart, Others, TooMuch


class Nodes:
    """The servers of some nodes, each with the agent's end of its socket. `cut`: to and from these all is lost."""

    def __init__(self, count: int) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        self.agents = [one for one, _ in pairs]
        self.sockets = [other for _, other in pairs]
        self.cut: set[int] = set()
        self.gone: list[list[int]] = [[] for _ in range(count)]
        self.servers = [Others(pairs[i][1].fileno(), i, count, self.gone[i].append) for i in range(count)]
        self._inboxes = [frames.Inbox() for _ in range(count)]
        self._unsent: list[list[bytes]] = [[] for _ in range(count)]
        for agent in self.agents:
            agent.setblocking(False)

    def gather(self, node: int, data: bytes) -> list[bytes]:
        """What it gets will be the only element."""
        got: list[bytes] = []
        self.servers[node].gather(data, got.append)
        return got

    def run(self) -> None:
        """Until nothing moves."""
        while sum(self._move(node) for node in range(len(self.servers))):
            pass

    def _move(self, node: int) -> bool:
        self.servers[node].write()
        moved = False
        with contextlib.suppress(BlockingIOError):
            while data := self.agents[node].recv(1 << 20):
                self._inboxes[node].feed(data)
                moved = True
        while (one := self._inboxes[node].next()) is not None:
            to, kind, data = one
            assert kind == frames.DATA
            for other in [to] if to >= 0 else [other for other in range(len(self.servers)) if other != node]:
                if not self.cut & {node, other}:
                    self.tell(other, node, frames.DATA, data)
        moved |= self._deliver(node)
        return moved

    def tell(self, node: int, about: int, kind: int, data: bytes = b"") -> None:
        """What an agent tells its server."""
        self._unsent[node].append(frames.frame(about, kind, data))

    def _deliver(self, node: int) -> bool:
        waiting, self._unsent[node] = self._unsent[node], []
        left = b"".join(waiting)
        while left:
            with contextlib.suppress(BlockingIOError):
                left = left[self.agents[node].send(left) :]
            self.servers[node].read()
        while select.select([self.sockets[node]], [], [], 0)[0]:
            self.servers[node].read()
        return bool(waiting)

    def read_twice(self, node: int) -> None:
        """What has come, and its end."""
        for _ in range(2):
            self.servers[node].read()

    def close(self) -> None:
        for one in (*self.agents, *self.sockets):
            one.close()


@pytest.fixture
def three() -> Nodes:
    return Nodes(3)


def test_all_get_what_each_has_given_in_the_order_of_the_nodes(three: Nodes) -> None:
    got = [three.gather(node, data) for node, data in ((2, b"c" * 700_000), (0, b"a"))]
    three.run()
    assert got == [[], []]
    got.append(three.gather(1, b""))
    three.run()
    assert got == [[b"a" + b"c" * 700_000]] * 3
    three.close()


def test_one_gathering_comes_after_the_other(three: Nodes) -> None:
    first = [three.gather(node, b"1") for node in range(3)]
    second = [three.gather(node, b"2") for node in range(3)]
    three.run()
    assert (first, second) == ([[b"111"]] * 3, [[b"222"]] * 3)
    three.close()


def test_a_share_that_was_lost_is_given_again(three: Nodes) -> None:
    three.cut = {1}
    got = [three.gather(node, b"%d" % node * 600_000) for node in range(3)]
    three.run()
    assert got == [[], [], []]
    three.cut = set()
    for node, about in ((1, 0), (0, 1)):
        three.tell(node, about, frames.AGAIN)
    three.run()
    assert got == [[b"0" * 600_000 + b"1" * 600_000 + b"2" * 600_000]] * 3
    three.close()


def test_a_whole_that_was_lost_is_sent_again_to_who_lost_it(three: Nodes) -> None:
    got = [three.gather(1, b"1"), three.gather(2, b"2")]
    three.run()
    three.cut = {2}
    got.append(three.gather(0, b"0"))
    three.run()
    assert got == [[b"012"], [], [b"012"]]
    ahead = [three.gather(0, b"x"), three.gather(1, b"y")]  # others are further already
    three.run()
    three.cut = set()
    three.tell(2, 0, frames.AGAIN)
    three.run()
    assert got == [[b"012"]] * 3
    ahead.append(three.gather(2, b"z"))
    three.run()
    assert ahead == [[b"xyz"]] * 3
    three.close()


def test_all_are_told_once_of_a_node_that_is_gone(three: Nodes) -> None:
    for _ in range(2):
        three.tell(0, 2, frames.ENDED)
    three.run()
    assert three.gone == [[2], [2], []]
    three.close()


def test_who_lost_the_news_of_it_is_told_again(three: Nodes) -> None:
    three.cut = {1}
    three.tell(0, 2, frames.ENDED)
    three.run()
    three.cut = set()
    three.tell(0, 1, frames.AGAIN)
    three.run()
    assert three.gone == [[2], [2], []]
    three.close()


def test_the_whole_comes_before_the_news_of_who_has_left_with_it(three: Nodes) -> None:
    got = [three.gather(1, b"1"), three.gather(2, b"2")]
    three.run()
    three.cut = {2}
    got.append(three.gather(0, b"0"))
    three.tell(0, 1, frames.ENDED)  # which had all that it waited for
    three.run()
    three.cut = set()
    waited: list[bool] = []
    three.servers[2]._on_gone = lambda _node: waited.append(not got[1])
    three.tell(0, 2, frames.AGAIN)
    three.run()
    assert (got, waited) == ([[b"012"]] * 3, [False])
    three.close()


def test_more_than_there_is_room_for_is_refused(three: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "MOST_GATHERED", 1000)
    with pytest.raises(TooMuch):
        three.gather(0, bytes(1001))
    three.gather(1, bytes(600))
    three.gather(2, bytes(600))
    with pytest.raises(TooMuch):
        three.run()
    three.close()


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 64,
        frames.frame(1, frames.DATA, b"?"),
        frames.frame(1, frames.DATA, b"S short"),
        frames.frame(9, frames.ENDED),
        frames.frame(0, frames.DATA, b""),
        b"",
    ],
)
def test_an_agent_that_says_what_is_no_frame_is_given_up(three: Nodes, said: bytes) -> None:
    three.agents[0].sendall(said)
    three.agents[0].shutdown(socket.SHUT_WR)
    with pytest.raises(Apart):
        three.read_twice(0)
    three.close()


def test_what_waits_at_the_end_still_goes_out() -> None:
    nodes = Nodes(2)
    got = nodes.gather(1, b"")
    nodes.run()
    nodes.gather(0, bytes(3 << 20))
    child = os.fork()
    if child == 0:
        nodes.servers[0].flush()
        os._exit(0)
    nodes.sockets[0].close()
    nodes.agents[0].setblocking(True)
    size = 0
    while data := nodes.agents[0].recv(1 << 20):
        size += len(data)
    assert os.waitpid(child, 0)[1] == 0
    assert size > 3 << 20
    assert not got
    nodes.close()
