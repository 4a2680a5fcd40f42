"""How many runners a forkserver keeps, and for whom; their ends of the links are here."""

import os
import socket
from collections.abc import Iterator

import pytest

from descriptors import no_number_left
from nodectl.launch.forkserver.runners import Runners
from nodectl.launch.stepd.orders import WAITS
from nodectl.model.wire.framing import DescriptorsLost

USER, ELSE = 1000, 1001


def never(lost: DescriptorsLost) -> None:
    raise AssertionError(lost)


class Kept:
    """One that is kept now: its end of the link, and its life."""

    def __init__(self, runners: Runners, uid: int, secure: str = "none", *, waits: bool = True) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pidfd, self._life = os.pipe()
        runners.add(1, pidfd, (uid, secure), ours, theirs)
        self.link = theirs.dup()
        self.link.settimeout(10)
        if waits:
            self.link.send(WAITS)

    def end(self) -> None:
        self.link.close()
        os.close(self._life)


@pytest.fixture
def channel() -> Iterator[socket.socket]:
    """What the daemon sends something over."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.send(b"{}")
        yield ours


def test_a_runner_that_has_ended_while_it_waited_takes_no_place(channel: socket.socket) -> None:
    runners = Runners(2, 3)
    waited = Kept(runners, USER)
    assert runners.has_room(ELSE), "it is seen to wait"
    waited.end()
    assert list(runners.not_taken(channel, never)) == []
    assert not runners.serve(b"{}", [], (USER, "none"))
    assert runners.has_room(USER)


def test_free_memory_is_returned_when_the_last_runner_has_ended(
    channel: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[str] = []
    monkeypatch.setattr("nodectl.kernel._kernel.trim", lambda: returned.append("free memory"))
    runners = Runners(2, 3)
    assert list(runners.not_taken(channel, never)) == []
    waited = Kept(runners, USER)
    assert list(runners.not_taken(channel, never)) == []
    waited.end()
    assert list(runners.not_taken(channel, never)) == []
    assert returned == [], "an order has come"
    Kept(runners, USER).end()
    channel.recv(2)
    assert list(runners.not_taken(channel, never)) == []
    assert returned == ["free memory"]


def test_an_order_that_a_runner_took_before_it_ended_is_its_own(channel: socket.socket) -> None:
    runners = Runners(2, 3)
    waited = Kept(runners, USER)
    assert runners.serve(b"an order", [], (USER, "none"))
    assert waited.link.recv(64) == b"an order"
    waited.end()
    assert list(runners.not_taken(channel, never)) == []


def test_an_order_that_a_runner_did_not_take_before_it_ended_comes_back(channel: socket.socket) -> None:
    runners = Runners(2, 3)
    waited, reader = Kept(runners, USER), socket.socket()
    assert runners.serve(b"an order", [reader.fileno()], (USER, "none"))
    waited.end()
    ((data, (copy,)),) = runners.not_taken(channel, never)
    assert data == b"an order"
    assert os.fstat(copy).st_ino == os.fstat(reader.fileno()).st_ino
    os.close(copy)
    assert not runners.serve(b"{}", [], (USER, "none")), "it has gone"


def test_an_order_is_refused_that_comes_back_and_has_more_descriptors_than_there_is_room_for(
    channel: socket.socket,
) -> None:
    runners = Runners(2, 3)
    waited, reader = Kept(runners, USER), socket.socket()
    assert runners.serve(b"an order", [reader.fileno()], (USER, "none"))
    waited.end()
    refused: list[DescriptorsLost] = []
    with no_number_left(os.getpid()):
        assert list(runners.not_taken(channel, refused.append)) == []
    assert [lost.message for lost in refused] == [b"an order"]


def test_an_order_that_comes_back_may_find_another_runner_that_has_ended(channel: socket.socket) -> None:
    runners = Runners(4, 3)
    first = Kept(runners, USER)
    assert runners.serve(b"an order", [], (USER, "none"))
    second = Kept(runners, USER)
    second.link.shutdown(socket.SHUT_RD)
    for runner in (first, second):
        runner.end()
    came_back = []
    for data, fds in runners.not_taken(channel, never):
        assert not runners.serve(data, fds, (USER, "none"))
        came_back.append(data)
    assert came_back == [b"an order"]


def test_a_runner_that_takes_no_more_orders_is_passed_over() -> None:
    runners = Runners(2, 3)
    waited = Kept(runners, USER)
    waited.link.shutdown(socket.SHUT_RD)
    assert not runners.serve(b"an order", [], (USER, "none"))


def test_a_users_runner_that_waits_makes_room_for_one_that_is_confined_otherwise() -> None:
    runners = Runners(4, 3)
    ends = [Kept(runners, USER, "none"), Kept(runners, USER, "none")]
    assert not runners.serve(b"{}", [], (USER, "strict"))
    assert runners.has_room(USER)
    assert ends[0].link.recv(1) == b"", "it is told to end"
    confined = Kept(runners, USER, "strict", waits=False)
    assert runners.serve(b"{}", [], (USER, "none")), "the other one still waits"
    for end in (*ends, confined):
        end.end()


def test_who_has_as_many_runners_as_one_may_have_gets_no_other_ones_place() -> None:
    runners = Runners(4, 3)
    ends = [Kept(runners, USER, waits=False), Kept(runners, USER, waits=False), Kept(runners, ELSE)]
    assert not runners.has_room(USER)
    assert runners.serve(b"{}", [], (ELSE, "none")), "it was left alone"
    for end in ends:
        end.end()
