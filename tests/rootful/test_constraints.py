"""What a machine whose controllers belong to cgroup v1 says of constraints, and what of them does not need any."""

from __future__ import annotations

import subprocess

import pytest

from nodectl import cgroup
from rootful.node import NOBODY, Node, running

_CONTROLLERS = cgroup.Group(cgroup.find_mount()).core.controllers
without_memory = pytest.mark.skipif("memory" in _CONTROLLERS, reason="this machine's cgroup2 has the memory controller")


@without_memory
@pytest.mark.parametrize(
    ("key", "controller"),
    [("constrain_ram_space", "memory"), ("constrain_swap_space", "memory"), ("constrain_processes", "pids")],
)
def test_constraint_that_cannot_be_kept_is_refused_at_the_start(key: str, controller: str) -> None:
    node = Node(**{key: "yes"})
    try:
        started = subprocess.run(
            node.command("daemon"), capture_output=True, text=True, check=False, timeout=30, env=node.environment()
        )
        assert started.returncode == 1
        line = f"nodectl daemon: {key} = yes: {controller}: cgroup2 has no such controller here"
        assert started.stderr.splitlines()[-1] == line
        assert not cgroup.Group(node.base).exists()
    finally:
        node.close()


@without_memory
def test_what_is_not_enforced_is_said_once_at_the_start_and_to_who_asked() -> None:
    with running() as node:
        for _ in range(2):
            ended = node.run("--mem=64M", "true", user=NOBODY)
            assert ended.returncode == 0
            (line,) = ended.stderr.splitlines()
            assert line.endswith(": its limit of 64 MiB of memory is not enforced on this machine")
        assert node.run("true", user=NOBODY).stderr == ""
        assert node.logged().count("constrain_ram_space: not enforced: memory: ") == 1
        assert "constrain_swap_space" not in node.logged()


def test_constraint_that_nobody_wants_is_not_spoken_of() -> None:
    with running(constrain_cores="no", constrain_ram_space="no", constrain_processes="no") as node:
        assert node.run("true").returncode == 0
        assert "not enforced" not in node.logged()


def test_constraint_needs_the_plugin_that_keeps_it() -> None:
    node = Node(task_plugin=["task/affinity"], constrain_ram_space="yes")
    try:
        with pytest.raises(AssertionError, match="constrain_ram_space = yes: task/cgroup is not in task_plugin"):
            node.start()
    finally:
        node.close()


def test_step_that_wants_more_memory_than_there_is_is_refused(node: Node) -> None:
    node.stop()
    node.configure(real_memory=1000)
    node.start()
    for words in (("--mem=2G",), ("--mem-per-cpu=501", "-n2")):
        refused = node.run(*words, "true")
        assert refused.returncode == 1
        assert "MiB are more than the 1000 MiB of this machine" in refused.stderr
    both = node.run("--mem=1", "--mem-per-cpu=1", "true")
    assert "mutually exclusive" in both.stderr


def test_tasks_find_the_memory_asked_for_in_their_environment(node: Node) -> None:
    shown = node.run("--mem=1G", "sh", "-c", "echo $SLURM_MEM_PER_NODE $SLURM_MEM_PER_CPU")
    assert shown.stdout == "1024\n"
    shown = node.run("--mem-per-cpu=8M", "sh", "-c", "echo $SLURM_MEM_PER_NODE $SLURM_MEM_PER_CPU")
    assert shown.stdout == "8\n"


def test_record_tells_what_step_and_tasks_waited_for(node: Node) -> None:
    assert node.run("-n2", "sh", "-c", "for i in 1 2 3; do true; done").returncode == 0
    record = node.record(node.last_job())
    tasks = record["tasks"]
    assert isinstance(tasks, list)
    for used in (record, *tasks):
        waited = used["pressure"]
        assert set(waited) == {"cpu", "memory", "io"}
        assert all(0 <= full <= some for some, full in waited.values())
    assert record["victims"] == []
    assert "waited for" in node.nodectl("show", str(node.last_job())).stdout


def test_task_that_is_killed_is_not_said_to_have_run_out_of_memory(node: Node) -> None:
    ended = node.run("sh", "-c", "kill -KILL $$")
    assert (ended.returncode, "emory" in ended.stderr) == (128 + 9, False)
    record = node.record(node.last_job())
    assert (record["state"], record["reason"]) == ("FAILED", "task 0 was ended by signal 9")
