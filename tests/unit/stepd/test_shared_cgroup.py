"""Out of memory, as a step without cgroups tells it: by the counter of the one that it shares with others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.cgroup.out_of_memory import kills, memory_limit
from nodectl.launch.stepd.end_reasons import EndReasons

KILLED, OF_SHELL, WELL, TERMINATED = 9, 137 << 8, 0, 15


class Shared:
    """A cgroup in which the kernel has killed somebody before, and a step of two tasks that is begun there."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.kill(1)
        (place / "memory.max").write_text(f"{250 << 20}\n")
        self.said: list[str] = []
        self.reasons = EndReasons(_step(), (), None, self.said.append, str(place))

    def kill(self, all_of_them: int) -> None:
        (self._place / "memory.events").write_text(f"oom 1\noom_kill {all_of_them}\n")

    def end(self, number: int, status: int, *, by_command: bool = False) -> Any:
        task: Any = SimpleNamespace(
            number=number, pid=40 + number, status=status, killed_by_command=by_command, out_of_memory=False,
        )  # fmt: skip
        self.reasons.task_ended(task)
        return task


def _step() -> Any:
    return SimpleNamespace(limits={}, cgroup="", bulk=False)


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def test_a_task_that_the_kernel_killed_is_told_with_the_limit(shared: Shared) -> None:
    shared.kill(2)
    assert shared.end(0, KILLED).out_of_memory
    reason = "out of memory: task 0: killed process 40 in a cgroup that is limited to 250 MiB"
    assert (shared.said, shared.reasons.reason) == ([reason], reason)


def test_a_shell_whose_program_was_killed_is_told(shared: Shared) -> None:
    shared.kill(2)
    assert shared.end(1, OF_SHELL).out_of_memory
    assert shared.said == ["out of memory: task 1: killed one of its processes in a cgroup that is limited to 250 MiB"]


def test_each_kill_is_told_of_one_task(shared: Shared) -> None:
    shared.kill(2)
    assert [shared.end(number, KILLED).out_of_memory for number in (0, 1)] == [True, False]
    shared.kill(3)
    assert shared.end(2, KILLED).out_of_memory


@pytest.mark.parametrize(("status", "kills", "by_command"), [
    (KILLED, 1, False), (WELL, 2, False), (TERMINATED, 2, False), (KILLED, 2, True),
])  # fmt: skip
def test_nothing_is_told_of_other_ends(shared: Shared, status: int, kills: int, *, by_command: bool) -> None:
    shared.kill(kills)
    assert not shared.end(0, status, by_command=by_command).out_of_memory
    assert not shared.said


def test_nothing_is_told_where_the_kernel_does_not_count(tmp_path: Path) -> None:
    said: list[str] = []
    reasons = EndReasons(_step(), (), None, said.append, str(tmp_path / "none"))
    task: Any = SimpleNamespace(number=0, pid=40, status=KILLED, killed_by_command=False, out_of_memory=False)
    reasons.task_ended(task)
    assert not said


def test_the_least_limit_above_counts(tmp_path: Path) -> None:
    task = tmp_path / "job_7/step_0/user/task_0"
    task.mkdir(parents=True)
    assert memory_limit(str(task)) is None
    for place, limit in (("job_7", "262144000"), ("job_7/step_0", "max"), ("job_7/step_0/user", "524288000")):
        (tmp_path / place / "memory.max").write_text(f"{limit}\n")
    assert memory_limit(str(task)) == 262144000


def test_kills_are_counted_where_the_kernel_counts_them(tmp_path: Path) -> None:
    assert kills(str(tmp_path)) is None
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 41\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert kills(str(tmp_path)) == 2
