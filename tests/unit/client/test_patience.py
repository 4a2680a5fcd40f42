"""Somebody at a terminal learns what a command waits for, and a program does not."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest

from nodectl.client import patience


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    monkeypatch.setattr(patience, "SECONDS", 0.01)
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def told(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, fd: int, method: str = "Queue") -> str:
    monkeypatch.setattr("sys.stderr", stream)
    patience.for_answer(fd, method, "/run/x.sock")
    return stream.getvalue()


def test_what_is_late_is_told_at_a_terminal(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> None:
    line = "nodectl: waiting for the service at /run/x.sock to answer Queue\n"
    assert told(monkeypatch, Terminal(), pipe[0]) == line
    assert told(monkeypatch, io.StringIO(), pipe[0]) == ""


def test_what_is_there_and_what_is_meant_to_last_is_not(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> None:
    assert told(monkeypatch, Terminal(), pipe[0], "Enter") == ""
    os.write(pipe[1], b"x")
    assert told(monkeypatch, Terminal(), pipe[0]) == ""
