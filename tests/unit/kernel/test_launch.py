"""Tasks that share this process's memory until their programs begin."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from nodectl.kernel import _kernel, operations

PLAN = [
    operations.environment({}),
    operations.argv(["true"]),
    operations.execute(["/bin/true"], is_path=True, what="execute: ", behind=""),
]


def context(groups: int = 1, report: int = -1) -> tuple[int, int, int, str, memoryview, int, int]:
    return report, -1, 0, "", memoryview(bytearray(4)), 0, groups


def guards() -> int:
    """Stretches of memory that nobody may touch: one below each task's stack, one behind its room."""
    return sum(" ---p 00000000 00:00 0" in line for line in Path("/proc/self/maps").read_text().splitlines())


def run(used: object = None, groups: int = 1) -> object:
    pid, memory = _kernel.start(PLAN, context(groups), -1, used)
    assert os.waitpid(pid, 0)[1] == 0
    return memory


def test_the_memory_of_a_task_that_has_ended_serves_the_next_and_is_gone_with_it() -> None:
    before = guards()
    memory = run()
    with_one = guards()
    for _ in range(3):
        memory = run(memory)
        assert guards() == with_one
    del memory
    assert guards() == before


def test_memory_serves_once() -> None:
    before = guards()
    first = run()
    with_one = guards()
    second, third = run(first), run(first)
    assert guards() > with_one
    del first, second, third
    assert guards() == before


def test_memory_that_is_too_small_is_not_used() -> None:
    small = run()
    large = run(small, groups=50_000)
    small = run(small)
    del large
    run(small)


def test_what_is_no_memory_of_a_task_is_refused() -> None:
    with pytest.raises(ValueError, match="Capsule"):
        _kernel.start(PLAN, context(), -1, "x")


def test_a_task_is_bound_before_it_comes_to_bind_itself() -> None:
    cpu = max(os.sched_getaffinity(0))
    gate, opener = os.pipe2(os.O_CLOEXEC)
    pid, memory = _kernel.start([operations.wait(gate), operations.bind([cpu], str(cpu)), *PLAN], context(), -1)
    bound = os.sched_getaffinity(pid)
    os.write(opener, b"1")
    assert os.waitpid(pid, 0)[1] == 0
    assert bound == {cpu}
    os.close(gate)
    os.close(opener)
    del memory


@pytest.mark.parametrize("told", [False, True])
def test_a_limit_that_cannot_be_set_stays_and_is_told_to_who_asks(*, told: bool) -> None:
    """Nobody may open more files than fs.nr_open, whatever an administrator has configured."""
    most = int(Path("/proc/sys/fs/nr_open").read_text(encoding="ascii")) + 1
    reader, report = os.pipe2(os.O_CLOEXEC)
    limit = operations.hard_limit(resource.RLIMIT_NOFILE, most, most, "limit of NOFILE: " if told else "")
    pid, memory = _kernel.start([limit, *PLAN], context(report=report), -1)
    os.close(report)
    with open(reader, "rb") as pipe:
        said = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    del memory
    lines = [json.loads(line) for line in said.split(b"\0") if line]
    assert lines == ([{"task": 0, "say": "limit of NOFILE: Operation not permitted"}] if told else [])
