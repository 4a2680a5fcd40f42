"""What `nodectl attach` shows of the packets that the step's process sends, which is the step's user's."""

from __future__ import annotations

import argparse
import os
import select
import socket
import threading
from collections.abc import Sequence

import pytest

from nodectl.cli.attach import Lines
from nodectl.model.wire import terminal_packets as packets

LABELLED = argparse.Namespace(label=True, quiet=False, output_filter=None, error_filter=None)


def show(sent: Sequence[bytes], ntasks: int = 2) -> None:
    """All of them, but not the ends of lines that have none."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        lines = Lines(ours, LABELLED, ntasks, types=False)
        for packet in sent:
            theirs.send(packet)
            lines.handle(ours.fileno(), select.POLLIN)


def test_a_line_without_an_end_is_not_kept_for_ever(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show([packets.packet(packets.OUT, b"x" * packets.LONGEST)] * 9)
    shown = capfdbinary.readouterr().out
    assert shown.count(b"x") > 7 * packets.LONGEST
    assert all(line.startswith(b"0: x") for line in shown.splitlines())


def test_a_line_in_pieces_is_shown_as_one(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pieces = ((b"a", 0), (b"b", 1), (b"c\nd", 0), (b"e\n", 1))
    show([packets.packet(packets.OUT, data, task) for data, task in pieces])
    assert capfdbinary.readouterr().out == b"0: ac\n1: be\n"


def test_a_task_that_is_not_there_is_not_shown(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show([packets.packet(packets.OUT, b"forged\n", 2), packets.packet(packets.OUT, b"own\n", 1)])
    assert capfdbinary.readouterr().out == b"1: own\n"


def test_a_pipe_that_does_not_wait_loses_nothing() -> None:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    found: list[bytes] = []
    taker = threading.Thread(target=lambda: found.extend(iter(lambda: os.read(reader, 512), b"")))
    before = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)
    taker.start()
    try:
        show([packets.packet(packets.OUT, b"y\n" * 30_000)] * 8)
    finally:
        os.dup2(before, 1)  # the last end of the pipe is closed
        os.close(before)
        taker.join()
        os.close(reader)
    assert b"".join(found) == b"0: y\n" * 240_000
