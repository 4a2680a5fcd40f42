"""The figures of a step's cgroup: which files the stepd reads at the end of the step."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.kernel import pseudo_file
from nodectl.launch.cgroup.tree import Group
from nodectl.launch.stepd.end_reasons import EndReasons

ALWAYS = ["cgroup.controllers", "cpu.stat", "cpu.pressure", "memory.pressure", "io.pressure"]


@pytest.fixture
def looked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all files that are opened."""
    seen: list[str] = []
    open_at = pseudo_file.open_at

    def see(path: str, flags: int) -> int:
        seen.append(os.path.basename(path))
        return open_at(path, flags)

    monkeypatch.setattr(pseudo_file, "open_at", see)
    return seen


def ended(step: Path, controllers: str, files: dict[str, str]) -> EndReasons:
    """The reasons of a step with one task, which has ended well in this cgroup."""
    user = step / "user"
    (user / "task_0").mkdir(parents=True)
    for name, text in {"cgroup.controllers": f"{controllers}\n", **files}.items():
        (user / name).write_text(text)
    task: Any = SimpleNamespace(number=0, local_id=0, pid=40, status=0, killed_by_command=False, out_of_memory=False)
    of_step: Any = SimpleNamespace(limits={}, cgroup="", bulk=False)
    reasons = EndReasons(of_step, [task], Group(str(step)), lambda _: None, "")
    reasons.task_ended(task)
    reasons.step_ended()
    return reasons


def test_no_file_of_a_missing_controller_is_looked_for(tmp_path: Path, looked_for: list[str]) -> None:
    ended(tmp_path, "", {"cpu.stat": "usage_usec 1\nuser_usec 2000000\nsystem_usec 1000000\n"})
    assert sorted(looked_for) == sorted(ALWAYS)


def test_figures_of_the_controllers_of_the_step_are_in_its_record(tmp_path: Path) -> None:
    files = {
        "memory.events": "oom_kill 2\n", "memory.peak": "4096\n", "pids.events": "max 3\n", "pids.peak": "7\n",
        "io.stat": "8:0 rbytes=10 wbytes=20\n",
    }  # fmt: skip
    used = ended(tmp_path, "memory pids io", files).used
    kept = ("oom_kills", "peak_memory", "forks_refused", "peak_processes", "read_bytes", "written_bytes")
    assert [used[name] for name in kept] == [2, 4096, 3, 7, 10, 20]
