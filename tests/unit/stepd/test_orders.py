"""What a runner looks at between two steps."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from descriptors import no_number_left
from nodectl.launch.stepd.orders import Order, Orders, Unreadable, receive
from nodectl.launch.streams.client_streams import are_left
from nodectl.model.wire import framing


def test_streams_that_come_when_a_step_is_over_are_refused() -> None:
    """Else they came between the look and the close, which then took as long as their maker liked."""
    way, streams = socket.socketpair()
    assert not are_left(streams.fileno())
    with pytest.raises(BrokenPipeError):
        socket.send_fds(way, [b"\0"], [0, 1, 2])
    os.fstat(streams.fileno())


def test_streams_that_nobody_took_are_seen() -> None:
    way, streams = socket.socketpair()
    socket.send_fds(way, [b"\0"], [0, 1, 2])
    way.close()
    assert are_left(streams.fileno())


def test_no_streams_come_from_a_client_that_has_gone() -> None:
    way, streams = socket.socketpair()
    streams.send(b"x")  # which makes the end a reset
    way.close()
    assert not are_left(streams.fileno())


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"job_id": 7, "allocation": "x"}'])
def test_the_file_of_a_step_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    spec = tmp_path / "7.0.json"
    if text is not None:
        spec.write_text(text)
    with pytest.raises(Unreadable, match=str(spec)):
        Order({"spec": str(spec), "runners": "", "trace": False}, [])


def test_a_runner_whose_step_cannot_be_read_ends_with_a_line(tmp_path: Path) -> None:
    script = (
        f"from nodectl.launch.stepd.main import main; main({{'spec': '{tmp_path}/7.0.json'}}, [], None, '', None, None)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"the file of a step cannot be read: {tmp_path}/7.0.json: ")


def waiting(link: socket.socket, seconds: float = 3) -> Orders:
    """The way to a runner that has served a step."""
    way = Orders(link, seconds)
    way._waits = True  # what `step_over` does, which closes all that the process has open
    return way


@pytest.fixture
def links() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The forkserver's end, the runner's end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_a_runner_that_has_waited_long_enough_takes_no_more_orders(
    links: tuple[socket.socket, socket.socket],
) -> None:
    assert waiting(links[1], 0.01).next() is None
    with pytest.raises(BrokenPipeError):
        links[0].send(b"{}")


class Late(socket.socket):
    """A link on which an order comes when its time is up."""

    sender: socket.socket
    order = b""

    def recvmsg(self, *how: int) -> Any:
        if self.order:
            order, self.order = self.order, b""
            self.sender.send(order)
            raise TimeoutError
        return super().recvmsg(*how)


def test_an_order_that_comes_in_the_last_moment_is_taken(
    links: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = links
    with Late(fileno=theirs.detach()) as link:
        link.sender, link.order = ours, json.dumps({"spec": f"{tmp_path}/7.0.json"}).encode()
        with pytest.raises(Unreadable, match=f"{tmp_path}/7.0.json"):
            waiting(link).next()
        with pytest.raises(BrokenPipeError):
            ours.send(b"{}")


def test_a_runner_whose_forkserver_has_ended_has_no_more_orders(links: tuple[socket.socket, socket.socket]) -> None:
    links[0].close()
    assert waiting(links[1]).next() is None


def test_an_order_stays_for_others_whose_descriptors_a_runner_has_no_room_for(
    links: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = links
    copy = theirs.dup()  # the forkserver's
    reader, writer = os.pipe()
    socket.send_fds(ours, [b"{}"], [reader, writer])
    with no_number_left(os.getpid(), but=1):
        assert waiting(theirs).next() is None  # rather than the order, which is malformed
    data, fds = receive(copy)
    assert (data, len(fds)) == (b"{}", 2)
    framing.close([reader, writer, *fds])
    copy.close()
