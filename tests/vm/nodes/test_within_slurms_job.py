"""Steps that root's service runs within Slurm's job on each machine: where they are, whose limits hold, what stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from vm import service
from vm.nodes import remote, serving
from vm.nodes.allocation import CPUS, MEMORY, NODES, SCOPE, Allocation, assert_clean, left, wait_for_slurm

_TASKS = tuple(node for node in NODES for _ in range(CPUS))  # of -N3 -n6
_EATER = "kept = []\nfor _ in range(64): kept.append(b'x' * (8 << 20))\n"  # more than the job has, little by little
_SLEEP = ("sh", "-c", "trap '' TERM; (setsid sleep 600 &); sleep 600")


@pytest.fixture(scope="module")
def served() -> Iterator[None]:
    wait_for_slurm()
    with serving.everywhere():
        yield
        assert_clean()


@pytest.fixture(scope="module")
def cluster(served: None) -> Iterator[Allocation]:
    del served
    with Allocation() as made:
        made.start()
        yield made


def _read(node: str, path: str) -> str:
    return remote.run(node, "cat", f"/sys/fs/cgroup{path}").stdout.strip()


def _user(cluster: Allocation, node: str) -> str:
    """The cgroup that has the limits of Slurm's step."""
    return cluster.place(node).rpartition("/")[0]


def _sleeps(node: str) -> int:
    return len(remote.run(node, "pgrep", "-x", "sleep", "-u", "alice").stdout.split())


def _jobs(node: str) -> list[str]:
    """The cgroups of Slurm's jobs there."""
    return remote.run(node, "find", f"/sys/fs/cgroup{SCOPE.format(node=node)}", "-name", "job_*").stdout.split()


def _sleeping(cluster: Allocation) -> None:
    service.wait_until(lambda: all(_sleeps(node) == 2 * CPUS for node in NODES), "all tasks sleep")


def _steps_by(cluster: Allocation) -> list[str]:
    told = json.loads(cluster.nodectl("cluster", "status", "--json").stdout)
    return [node["steps_by"] for node in told["nodes"]]


def test_status_tells_who_runs_the_steps(cluster: Allocation) -> None:
    services = [f"the service, in {_user(cluster, node)}" for node in NODES]
    service.wait_until(lambda: _steps_by(cluster) == services, "all have joined")
    assert "the service, in " in cluster.nodectl("cluster", "status").stdout


def test_steps_are_beside_the_task_of_slurms_in_cgroups_of_their_own(cluster: Allocation) -> None:
    said = cluster.run("-N3", "-n6", "--mem=100M", "cat", "/proc/self/cgroup")
    for node, line in zip(_TASKS, said, strict=True):
        assert line.startswith(f"0::{_user(cluster, node)}/nodectl/step_"), said
    for node in NODES:
        service.wait_until(partial(_is_gone, cluster, node), "ours is removed")


def _is_gone(cluster: Allocation, node: str) -> bool:
    return "nodectl" not in remote.run(node, "ls", f"/sys/fs/cgroup{_user(cluster, node)}").stdout.split()


def test_limits_of_both_hold(cluster: Allocation) -> None:
    """Each task is confined to CPUs of those that Slurm gave; the step to its own memory, and to the job's."""
    show = 'd=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/..; cat $d/memory.max $d/cpuset.cpus | tr "\\n" " "; echo'
    said = cluster.run("-N3", "-n3", "--mem=100M", "sh", "-c", show)
    for node, line in zip(NODES, said, strict=True):
        memory, cpus = line.split()
        assert memory == str(100 << 20)
        given = _read(node, f"{_user(cluster, node)}/cpuset.cpus.effective")
        assert set(cpus) <= set("012" if given == "0-2" else given.replace("-", ","))
        assert _read(node, f"{_user(cluster, node)}/memory.max") == str(MEMORY << 20)


def test_a_steps_own_memory_ends_it_and_the_job_goes_on(cluster: Allocation) -> None:
    done = cluster.nodectl("run", "-N1", "-n1", "--mem=60M", "python3", "-S", "-c", _EATER)
    assert done.returncode != 0
    assert "out of memory" in done.stderr, done
    assert cluster.run("-N3", "-n3", "echo", "here") == ["here"] * 3


def test_a_step_without_a_limit_has_that_of_the_job(cluster: Allocation) -> None:
    done = cluster.nodectl("run", "-N1", "-n1", "python3", "-S", "-c", _EATER)
    assert done.returncode != 0, done
    assert "out of memory" in done.stderr, done


def test_cpus_beyond_slurms_cannot_be_had(cluster: Allocation) -> None:
    """Not by the program either, as the kernel has it in a cgroup."""
    try_all = "import os; os.sched_setaffinity(0, range(3)); print(len(os.sched_getaffinity(0)))"
    had = cluster.run("-N3", "-n3", "--overlap", "python3", "-S", "-c", try_all)
    assert len(had) == 3
    assert all(int(number) <= CPUS for number in had)


def test_an_agent_that_is_killed_takes_its_steps_along(cluster: Allocation) -> None:
    """The other nodes of the step are told, and Slurm's cgroups are there until the job is over."""
    step = cluster.popen("run", "-N3", "-n6", *_SLEEP)
    _sleeping(cluster)
    remote.run("n3", "pkill", "-KILL", "-f", "nodectl.cluster.agent")
    service.wait_until(lambda: _sleeps("n3") == 0, "all has ended there")
    step.communicate()
    assert step.returncode != 0
    assert cluster.run("-N2", "-n2", "echo", "here") == ["here"] * 2


def test_scancel_leaves_nothing_where_the_service_is_dead_too(cluster: Allocation) -> None:
    """No process and no cgroup; the last one of this allocation."""
    step = cluster.popen("run", "-N2", "-n4", *_SLEEP)
    service.wait_until(lambda: all(_sleeps(node) == 2 * CPUS for node in NODES[:2]), "all tasks sleep")
    remote.run("n2", "systemctl", "kill", "--kill-who=main", "--signal=STOP", "nodectld.service")
    try:
        remote.run("n1", "scancel", cluster.job)
        step.communicate()
        assert step.returncode != 0
        cluster.end()
        service.wait_until(lambda: not _sleeps("n2") and not _jobs("n2"), "nothing is left there of the job")
    finally:
        remote.run("n2", "systemctl", "kill", "--kill-who=main", "--signal=CONT", "nodectld.service")
    # The directory of an agent that was killed goes when the next one of its user begins there.
    service.wait_until(lambda: not [line for line in left() if "/cluster/" not in line], "nothing else is left")


def test_the_time_limit_of_the_job_leaves_nothing(served: None) -> None:
    del served
    with Allocation() as made:
        made.start()
        step = made.popen("run", "-N3", "-n6", *_SLEEP)
        _sleeping(made)
        remote.run("n1", "scontrol", "update", f"JobId={made.job}", "TimeLimit=0:01")
        step.communicate()
        made.end()
    assert_clean()
    for node in NODES:
        scope = f"/sys/fs/cgroup{SCOPE.format(node=node)}"
        assert not remote.run(node, "find", scope, "-name", "nodectl*").stdout
