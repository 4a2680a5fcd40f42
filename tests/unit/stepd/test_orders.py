"""What a runner looks at between two steps."""

import os
import socket

import pytest

from nodectl.stepd.orders import _holds_streams


def test_streams_that_come_when_a_step_is_over_are_refused() -> None:
    """Else they came between the look and the close, which then took as long as their maker liked."""
    way, streams = socket.socketpair()
    assert not _holds_streams(streams.fileno())
    with pytest.raises(BrokenPipeError):
        socket.send_fds(way, [b"\0"], [0, 1, 2])
    os.fstat(streams.fileno())


def test_streams_that_nobody_took_are_seen() -> None:
    way, streams = socket.socketpair()
    socket.send_fds(way, [b"\0"], [0, 1, 2])
    way.close()
    assert _holds_streams(streams.fileno())


def test_no_streams_come_from_a_client_that_has_gone() -> None:
    way, streams = socket.socketpair()
    streams.send(b"x")  # which makes the end a reset
    way.close()
    assert not _holds_streams(streams.fileno())
