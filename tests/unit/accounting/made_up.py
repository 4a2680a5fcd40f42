"""Records as the history keeps them, for tests of what accounting makes of them."""

from __future__ import annotations

from typing import Any

from nodectl.model.accounting import usage
from nodectl.model.accounting.rows import Row, rows_of

MIB = 1 << 20


def task(number: int = 0, **values: Any) -> dict[str, Any]:
    """A task of a record."""
    return {
        "task": number,
        "pid": 100 + number,
        "status": 0,
        "user_seconds": 1.0,
        "system_seconds": 0.5,
        "max_rss_kib": 1024,
        "read_chars": 10 * MIB,
        "written_chars": MIB,
        **values,
    }


def record(job: int = 7, step: int = 0, **values: Any) -> dict[str, Any]:
    """A step that ran for a hundred seconds on two CPUs."""
    return {
        "job": job,
        "step": step,
        "name": "solver",
        "user": "alice",
        "uid": 1001,
        "gid": 1001,
        "node": "vm",
        "command": ["solver", "input"],
        "cwd": "/home/alice",
        "ntasks": 1,
        "cpus": "3",
        "secure": "default",
        "memory": 100,
        "limits": {},
        "submitted": 1000.0,
        "state": "COMPLETED",
        "reason": "",
        "exit_status": 0,
        "started": 1010.0,
        "ended": 1110.0,
        "suspended_seconds": 0.0,
        "tasks": [task()],
        **values,
    }


def job(number: int = 7, **values: Any) -> dict[str, Any]:
    """A job's record."""
    details = {"num_tasks": 1, "cpus_per_task": 2, "min_cpus": 2, "pn_min_memory": 200, "argv": ["script.sh"]}
    return {
        "job_id": number,
        "user_id": 1001,
        "group_id": 1001,
        "user_name": "alice",
        "name": "batch job",
        "job_state": "COMPLETED",
        "submit_time": 900.0,
        "eligible_time": 950.0,
        "start_time": 1000.0,
        "end_time": 1200.0,
        "time_limit": 3600,
        "details": details,
        **values,
    }


HELD = {"vm": {"mask": "3", "cpus": 2, "memory": 200, "tasks": 1, "gres": ["gpu:0", "gpu:1"]}}


def rows(steps: list[dict[str, Any]], jobs: list[dict[str, Any]] | None = None, **options: Any) -> list[Any]:
    """Jobs with their steps, as the commands have them."""
    compact = [usage.of_job(one, HELD) for one in jobs or ()]
    return rows_of(compact, map(usage.of_step, steps), **options)


def row(step: dict[str, Any]) -> Row:
    """The row of one step."""
    found: Row = rows([step])[0][1][0]
    return found
