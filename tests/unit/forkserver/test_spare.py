"""What the forkserver takes from the stepd that was its first spare."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from nodectl.launch.forkserver import spare as spares
from nodectl.launch.forkserver.spare import Spare
from nodectl.launch.stepd.orders import ForkedAhead

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def link() -> Iterator[Ends]:
    yield from pair()


@pytest.fixture
def channel() -> Iterator[Ends]:
    yield from pair()


def pair() -> Iterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_a_number_that_is_told_twice_is_no_lesson() -> None:
    """A spare that is killed as it tells the number of its successor leaves that one to tell it again."""
    spare = Spare(3, wanted=True)
    spare._lesson, stepd = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    spare._lesson.setblocking(False)
    with stepd:
        stepd.send(b"4711")
        stepd.send(pages := bytes(16))
        spare._learn()
        assert not spare._pages
        spare._learn()
    assert spare._pages == pages


def test_the_next_one_is_forked_when_the_tasks_of_the_last_ones_step_have_begun(
    link: Ends, channel: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "_BEGINS_WITHIN", None)
    spare = Spare(3, wanted=True)
    spare._begins = link[0]
    ForkedAhead(link[1], teaches=False).tasks_begin()
    spare.let_step_begin(channel[0])


def test_no_order_waits_until_the_tasks_of_another_step_have_begun(
    link: Ends, channel: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "_BEGINS_WITHIN", None)
    spare = Spare(3, wanted=True)
    spare._begins = link[0]
    channel[1].send(b"order")
    spare.let_step_begin(channel[0])


def test_the_forkserver_waits_for_no_stepd_that_a_users_cgroup_keeps_from_running(link: Ends, channel: Ends) -> None:
    spare = Spare(3, wanted=True)
    spare._begins = link[0]
    spare.let_step_begin(channel[0])
