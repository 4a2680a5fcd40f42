"""When the listener takes a session for one that hangs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from nodectl.model.wire import framing
from nodectl.service.listener import main

SECONDS = 60


class Clock:
    """Time, as the listener sees it."""

    def __init__(self) -> None:
        self.now = 1.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(main, "time", made)
    return made


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    entrance, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    entrance.setblocking(False)
    with entrance, theirs:
        yield entrance, theirs


def stuck_after(
    clock: Clock, ends: tuple[socket.socket, socket.socket], given: int, taken: int, before: int
) -> int | None:
    """With so many connections given and taken in each second, looked at before any of them is taken."""
    entrance, theirs = ends
    place = main.SessionProcess(1, entrance, os.pidfd_open(os.getpid()))
    for number in range(before):
        assert place.give(number, theirs)
    for second in range(SECONDS):
        for number in range(given):
            assert place.give(number, theirs)
            if place.is_stuck(clock.now):
                return second
            clock.now += 1 / given
        for _ in range(taken):
            framing.close(socket.recv_fds(theirs, 64, 1)[1])
    return None


def test_a_session_with_something_before_it_at_each_look_is_not_stuck(
    clock: Clock, ends: tuple[socket.socket, socket.socket]
) -> None:
    """On one CPU it comes to nothing before the listener sleeps: after some seconds it was killed."""
    assert stuck_after(clock, ends, 1, 1, 0) is None


def test_a_session_that_is_slow_is_not_stuck(clock: Clock, ends: tuple[socket.socket, socket.socket]) -> None:
    assert stuck_after(clock, ends, 2, 2, 20) is None


def test_a_session_that_takes_nothing_is_stuck(clock: Clock, ends: tuple[socket.socket, socket.socket]) -> None:
    second = stuck_after(clock, ends, 2, 0, 0)
    assert second is not None
    assert second < SECONDS / 2
