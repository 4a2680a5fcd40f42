"""What steps without a cgroup use: sums of made-up processes, and what is read of a real one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from nodectl.launch.cgroup.usage import Usage
from nodectl.service.daemon.steps import process_usage
from nodectl.service.daemon.steps.process_usage import Process, Processes

RUNNER, TASK = 10, 20
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SPIN = "import time\nwhile time.process_time() < 0.3: pass\n"


def process(parent: int, group: int = TASK, *, spent: int = 0, waited: int = 0, resident: int = 0) -> Process:
    return Process(parent, group, spent * TICKS, waited * TICKS, resident)


def used(found: dict[int, Process], before: float = 0.0) -> tuple[float | None, int | None]:
    usage = Processes(found).used(RUNNER, before)
    assert usage == Usage(usage.cpu_seconds, usage.memory, None, None, {})
    return usage.cpu_seconds, usage.memory


def test_all_below_a_runner_count_and_nothing_else() -> None:
    found = {
        1: process(0, 1, spent=1000, resident=1000),
        RUNNER: process(1, RUNNER, spent=500, waited=4, resident=500),
        TASK: process(RUNNER, spent=1, waited=2, resident=3),
        21: process(TASK, spent=8, resident=4),
        22: process(21, 22, spent=16),
        30: process(1, 30, spent=1000, resident=1000),
    }
    assert used(found) == (31.0, 7 * PAGE)
    assert used(found, before=3.0) == (28.0, 7 * PAGE)


def test_what_copies_streams_for_the_runner_is_none_of_the_step() -> None:
    """Whatever of the step's has been left to the runner is."""
    found = {
        RUNNER: process(1, RUNNER),
        11: process(RUNNER, RUNNER, spent=100, resident=100),
        21: process(RUNNER, TASK, spent=1, resident=1),
    }
    assert used(found) == (1.0, PAGE)


def test_where_the_runner_is_not_there_nothing_is_known() -> None:
    assert used({TASK: process(1)}) == (None, None)
    assert used({RUNNER: process(1, RUNNER, waited=2)}) == (2.0, None)


def test_numbers_that_were_used_again_meanwhile_make_no_circle() -> None:
    found = {RUNNER: process(22, RUNNER), 21: process(RUNNER), 22: process(21, spent=1)}
    assert used(found) == (1.0, 0)


def test_a_child_counts_while_it_runs_and_when_it_has_ended() -> None:
    me = os.getpid()
    before = process_usage.spent_by_children(me)
    words = [sys.executable, "-IS", "-c", f"{SPIN}print(flush=True)\ninput()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (runs,) = asyncio.run(process_usage.of_steps({(7, 0): (me, before)})).values()
        assert runs.cpu_seconds is not None
        assert runs.memory is not None
        assert runs.cpu_seconds > 0.25
        assert runs.memory > 1 << 20
        child.communicate(b"\n")
    (ended,) = asyncio.run(process_usage.of_steps({(7, 0): (me, before)})).values()
    assert ended.cpu_seconds is not None
    assert ended.cpu_seconds >= runs.cpu_seconds - 0.05


def test_others_have_their_turn_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_usage, "_SLICE", 1)
    turns = []

    async def reads() -> None:
        reading = asyncio.ensure_future(process_usage.of_steps({(7, 0): (1, 0.0)}))
        while not reading.done():
            turns.append(1)
            await asyncio.sleep(0)

    asyncio.run(reads())
    assert len(turns) > 2


def test_of_more_processes_than_it_looks_at_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_usage, "_MOST_PROCESSES", 1)
    assert asyncio.run(process_usage.of_steps({(7, 0): (os.getpid(), 0.0)})) == {
        (7, 0): Usage(None, None, None, None, {})
    }
