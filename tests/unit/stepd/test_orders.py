"""What a runner looks at between two steps."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.stepd.orders import Order, Unreadable, _holds_streams


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


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"job_id": 7, "allocation": "x"}'])
def test_the_file_of_a_step_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    spec = tmp_path / "7.0.json"
    if text is not None:
        spec.write_text(text)
    with pytest.raises(Unreadable, match=str(spec)):
        Order({"spec": str(spec), "trace": False}, [])


def test_a_runner_whose_step_cannot_be_read_ends_with_a_line(tmp_path: Path) -> None:
    script = f"from nodectl.stepd.main import main; main({{'spec': '{tmp_path}/7.0.json'}}, [], None, '', None, None)"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"the file of a step cannot be read: {tmp_path}/7.0.json: ")
