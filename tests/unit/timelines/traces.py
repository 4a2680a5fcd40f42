"""A launch of two tasks, as its trace and its record tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.view.timelines.launch import Launch, launch_of

SUBMITTED = 1_700_000_000.25
RECORD: Mapping[str, Any] = {
    "job": 7, "step": 0, "node": "n1", "name": "so<lve", "ntasks": 2, "user": "alice", "submitted": SUBMITTED,
}  # fmt: skip
_FACTS: Mapping[str, Any] = {
    "kind": "step", "plugin": "", "task": None, "ruid": 0, "euid": 0, "cgroup": "/a", "affinity": "3", "rc": 0,
}  # fmt: skip


def line(t: int, us: int, call: str, process: str, pid: int, **others: Any) -> Mapping[str, Any]:
    """A line of the flight recorder; times in microseconds."""
    return {**_FACTS, "t": 5_000_000_000 + t * 1000, "us": us, "call": call, "process": process, "pid": pid, **others}


def task(number: int, at: int) -> list[Mapping[str, Any]]:
    """What a task calls."""
    user = {"ruid": 1001, "euid": 1001, "task": number}
    pid = 30 + number
    return [
        line(at, 20, "become_user", "task", pid, **user),
        line(at + 30, 900, "gate", "task", pid, **user),
        line(at + 1000, 0, "exec", "task", pid, **user),
    ]


TRACE: Sequence[Mapping[str, Any]] = (
    line(0, 200, "task_p_slurmd_launch_request", "daemon", 10, kind="task", plugin="task/affinity"),
    line(300, 100, "slurm_spank_user_init", "stepd", 20, kind="spank", plugin="mark", euid=1001),
    *task(0, 600),
    # Written when it was over, after what the child it made had begun.
    line(500, 150, "fork", "stepd", 20, task=0),
    line(700, 150, "fork", "stepd", 20, task=1),
    *task(1, 800),
    line(2500, 100, "slurm_spank_exit", "stepd", 20, kind="spank", plugin="mark", rc=-1, note="no\x1b[31m & so on"),
)


def launch(lines: Sequence[Mapping[str, Any]] = TRACE, **changes: Any) -> Launch:
    """That launch."""
    return launch_of({**RECORD, **changes}, lines, lambda uid: "alice" if uid else "root")
