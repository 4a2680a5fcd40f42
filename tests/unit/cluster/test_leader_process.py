"""The agent of rank 0 and its leader: one that says nothing any more is followed by another."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.cluster.agent import leader_process
from nodectl.cluster.agent.leader_process import LeaderProcess
from nodectl.cluster.agent.place import Place
from nodectl.cluster.succession.directory import SUPERSEDED, Epoch

_PYTHON = sys.executable
_LEADER = "import os, sys; open({file!r}, 'a').write(str(os.getpid()) + chr(10)); sys.stdin.read() #{{path}}"


def leader(say: Callable[[str], None], is_there: Callable[[], bool], superseded: Any = None) -> LeaderProcess:
    return LeaderProcess(bytes(32), Epoch(0, 0, ()), Place(1, 0, ["n0"]), {}, say, is_there, superseded)


def test_a_leader_that_somebody_has_stopped_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pids"
    file.touch()
    monkeypatch.setattr(leader_process, "_START", _LEADER.format(file=str(file)))
    monkeypatch.setattr(leader_process, "_LOOK", 0.01)
    said: list[str] = []
    pids: list[int] = []

    async def another() -> None:
        before = len(pids)
        while len(pids) == before:
            await asyncio.sleep(0.01)
            pids[:] = map(int, file.read_text().split())

    async def play() -> None:
        stopped = 0

        def is_there() -> bool:  # only the one that was stopped is not
            return process._process is None or process._process.pid != stopped

        process = leader(said.append, is_there)
        process.start()
        try:
            async with asyncio.timeout(60):
                await another()
                stopped = pids[0]
                os.kill(stopped, signal.SIGSTOP)
                await another()
        finally:
            await process.end()
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)

    asyncio.run(play())
    assert "not heard any more" in said[0]


def test_a_leader_that_cannot_be_started_is_started_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pids"
    program = tmp_path / "python"
    monkeypatch.setattr(leader_process, "_START", _LEADER.format(file=str(file)))
    monkeypatch.setattr(sys, "executable", str(program))
    said: list[str] = []

    async def play() -> None:
        process = leader(said.append, lambda: True)
        process.start()
        try:
            async with asyncio.timeout(60):
                while not said:  # noqa: ASYNC110  # of what is looked at nobody tells
                    await asyncio.sleep(0.01)
                program.symlink_to(_PYTHON)
                while not file.exists():  # noqa: ASYNC110  # likewise
                    await asyncio.sleep(0.01)
        finally:
            await process.end()

    asyncio.run(play())
    assert "No such file" in said[0]


def test_a_leader_whom_nobody_follows_any_more_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_process, "_START", f"import sys; sys.exit({SUPERSEDED}) #{{path}}")
    said: list[str] = []

    async def play() -> None:
        superseded = asyncio.Event()
        process = leader(said.append, lambda: True, superseded.set)
        process.start()
        async with asyncio.timeout(60):
            await superseded.wait()
        await process.end()

    asyncio.run(play())
    assert not said
