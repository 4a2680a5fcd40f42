"""What the MPI servers of a step's nodes give each other, over agents that may lose what is on its way."""

from __future__ import annotations

import os
import socket

import pytest

from nodectl.model import mpi_frames as frames
from nodectl.mpi import others
from nodectl.mpi.others import Apart, TooMuch
from unit.mpi.servers import Nodes


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


class Reader:
    """What one server hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bytes] | str] = []

    def hear(self, node: int, letter: bytes) -> None:
        self.heard.append((node, letter))

    def ask_again(self) -> None:
        self.heard.append("again")


@pytest.fixture
def readers(three: Nodes) -> list[Reader]:
    found = [Reader() for _ in range(3)]
    for server, reader in zip(three.servers, found, strict=True):
        server.read_letters(reader)
    return found


def test_a_letter_comes_to_whom_it_is_for_and_to_nobody_else(three: Nodes, readers: list[Reader]) -> None:
    for sender, to in ((1, 2), (2, 0), (0, 1)):
        three.servers[sender].write_letter(to, b"%d to %d" % (sender, to))
    three.run()
    assert [reader.heard for reader in readers] == [[(2, b"2 to 0")], [(0, b"0 to 1")], [(1, b"1 to 2")]]
    three.close()


def test_all_are_told_that_letters_may_be_lost_on_a_way_that_was_broken(three: Nodes, readers: list[Reader]) -> None:
    """Those of node 1 to node 2 go by node 0."""
    for node, about in ((0, 2), (2, 0)):
        three.tell(node, about, frames.AGAIN)
    three.run()
    assert ["again" in reader.heard for reader in readers] == [True] * 3
    three.close()


def letter(to: int, sender: int, text: bytes = b"") -> bytes:
    return b"L" + to.to_bytes(4, "big") + sender.to_bytes(4, "big") + text


@pytest.mark.parametrize(
    ("node", "sender", "data"),
    [
        (0, 1, letter(0, 2)),  # in another one's name
        (0, 1, letter(1, 1)),
        (0, 1, letter(3, 1)),
        (0, 1, letter(0, 1, bytes(others.LONGEST_LETTER + 1))),
        (0, 1, b"A"),  # which is node 0's to say
        (1, 0, letter(2, 0)),  # for somebody else
        (1, 2, letter(1, 2)),  # not by way of node 0
        (1, 0, letter(1, 1)),
        (1, 0, letter(1, 7)),
        (1, 0, b"L"),
        (1, 0, b"?"),
    ],
)
def test_what_is_no_letter_ends_the_talk(
    three: Nodes, readers: list[Reader], node: int, sender: int, data: bytes
) -> None:
    three.tell(node, sender, frames.DATA, data)
    with pytest.raises(Apart):
        three.run()
    assert not readers[node].heard
    three.close()


def test_who_reads_no_letters_gets_none(three: Nodes) -> None:
    three.tell(0, 1, frames.DATA, letter(0, 1))
    with pytest.raises(Apart):
        three.run()
    three.close()
