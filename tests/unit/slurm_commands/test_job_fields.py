"""What squeue and scontrol say of a job, of the service's record."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.model.words import short_duration
from nodectl.slurm.commands.column_format import by_letters
from nodectl.slurm.commands.job_fields import FIELDS, devices
from nodectl.slurm.commands.job_values import as_json, job_facts
from nodectl.slurm.commands.time_words import limit

JOB: dict[str, Any] = {
    "job": 7, "name": "solver", "user": "root", "uid": 0, "state": "PENDING", "nodes": "", "used": 0.0,
    "time_limit": 0, "cpus": 4, "partition": "local", "reason": "Resources", "held_by": "batch", "command": ["job.sh"],
    "work_dir": "/home/a", "stdout": "", "stderr": "", "priority": 12, "memory": 2048, "gres": "gpu:2", "submit": 1e9,
    "exit_code": 0,
}  # fmt: skip


def shown(letters: str, **changes: object) -> str:
    return by_letters(letters, FIELDS).line(JOB | changes)


def test_a_waiting_job_says_why_and_a_running_one_where() -> None:
    assert shown("%R") == "(Resources)"
    assert shown("%R", state="RUNNING", nodes="n1", reason="") == "n1"
    assert shown("%r", state="RUNNING", reason="") == "None"
    assert shown("%R", state="FAILED", nodes="n1", reason="NonZeroExitCode") == "(NonZeroExitCode)"


@pytest.mark.parametrize(
    ("changes", "name", "index"),
    [
        ({}, "7", "N/A"),
        ({"array_job": 5, "array_task": 0}, "5_0", "0"),
        ({"array_tasks": "0-3,9", "array_limit": 2}, "7_[0-3,9%2]", "0-3,9"),
        ({"job": 9, "array_job": 7, "array_tasks": "4"}, "7_[4]", "4"),
    ],
)
def test_tasks_of_arrays_are_named_as_slurm_names_them(changes: dict[str, object], name: str, index: str) -> None:
    assert shown("%i|%K", **changes) == f"{name}|{index}"


def test_amounts() -> None:
    assert shown("%C %m %b %l %D") == "4 2G gres:gpu:2 UNLIMITED 1"
    assert shown("%m", memory=1500) == "1500M"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (65, "1:05"), (3600, "1:00:00"), (90_061, "1-01:01:01"), (-5, "0:00")],
)
def test_durations_have_no_more_than_they_need(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


def test_devices_of_a_job_that_never_started_are_those_it_asked_for() -> None:
    for state in ("PENDING", "CANCELLED", "DEADLINE"):
        assert devices(JOB | {"state": state, "gres": "gpu:2,shard:3,gpumem:512"}) == {
            "gpu": "2", "shard": "3", "gpumem": "512M",
        }, state  # fmt: skip
    assert devices(JOB | {"state": "CANCELLED", "start": 1e9, "gres": "gpu:2,gpu:3"}) == {"gpu": "2"}


def test_no_limit_is_unlimited() -> None:
    assert limit(0) == "UNLIMITED"


def test_blocks_name_script_and_output_in_the_jobs_directory() -> None:
    words = [word for line in job_facts(JOB, details=False) for word in line]
    assert "Command=/home/a/job.sh" in words
    assert "StdOut=/home/a/slurm-7.out" in words
    assert "JobState=PENDING" in words
    assert "TRES=cpu=4,mem=2G,node=1,billing=4,gres/gpu=2" in words
    words = [word for line in job_facts(JOB | {"exit_code": 137, "stdout": "o-%x-%j"}, details=True) for word in line]
    assert {"ExitCode=0:9", "StdOut=/home/a/o-solver-7", "JOB_GRES=gpu:2"} <= set(words)


def test_what_is_not_told_of_others_jobs_is_not_needed() -> None:
    words = [
        word for line in job_facts(JOB | {"name": "", "command": [], "work_dir": ""}, details=True) for word in line
    ]
    assert "Command=(null)" in words


def test_json_has_slurms_names() -> None:
    found = as_json(JOB)
    assert (found["job_id"], found["job_state"], found["state_reason"]) == (7, "PENDING", "Resources")


def test_parts_of_devices_are_counted_as_slurm_counts_them() -> None:
    held = {"state": "RUNNING", "gres": "gpu:1/shard:2/mem:512M"}
    assert devices(held) == {"shard": "2", "gpumem": "512M"}
    assert devices({"state": "PENDING", "gres": "shard:2,gpumem:512"}) == {"shard": "2", "gpumem": "512M"}
    assert devices({"state": "PENDING", "gres": "gpu:a100:2"}) == {"gpu": "2"}
