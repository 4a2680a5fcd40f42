"""A bulk step where cgroup2 has the controllers: what each command used, and one that runs out of memory."""

from __future__ import annotations

import json
import signal

import pytest

from vm import service

HOG = "python3 -Sc 'len(bytearray(200 << 20))'"
MODEST = "python3 -Sc 'len(bytearray(20 << 20))'"


def test_a_command_that_runs_out_of_memory_fails_alone_and_each_has_its_own_peak() -> None:
    lines = "\n".join(["true", HOG, MODEST, "true"]) + "\n"
    done = service.run("nodectl", "bulk", "-j1", "--mem=100M", user="alice", stdin=None, input=lines)
    assert done.returncode == 1, done.stderr
    (step,) = json.loads(service.nodectl("ps", "--json", "--ended", "1"))["steps"]
    record = json.loads(service.nodectl("show", "--json", f"{step['job']}.{step['step']}"))
    assert record["state"] == "OUT_OF_MEMORY"
    bulk = record["bulk"]
    assert {name: bulk[name] for name in ("commands", "succeeded", "failed", "out_of_memory", "signalled")} == {
        "commands": 4, "succeeded": 3, "failed": 1, "out_of_memory": 1, "signalled": 1,
    }  # fmt: skip
    (failure,) = bulk["failures"]
    assert failure["status"] == signal.SIGKILL
    (task,) = record["tasks"]
    assert 90 << 20 < task["peak_memory"] <= 100 << 20


@pytest.mark.all
def test_commands_for_whose_processes_there_is_no_room_wait_for_others() -> None:
    lines = "sleep 0.1\n" * 20
    done = service.run("nodectl", "bulk", "-j4", "--pids-max=2", user="alice", stdin=None, input=lines)
    assert done.returncode == 0, done.stderr
    assert "reached its limit of 2 processes and threads" in done.stderr
    (step,) = json.loads(service.nodectl("ps", "--json", "--ended", "1"))["steps"]
    record = json.loads(service.nodectl("show", "--json", f"{step['job']}.{step['step']}"))
    assert (record["state"], record["bulk"]["succeeded"], record["bulk"]["commands"]) == ("COMPLETED", 20, 20)
