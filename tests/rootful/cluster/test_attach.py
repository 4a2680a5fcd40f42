"""`nodectl attach`, `suspend` and `resume` of a step over three agents, from any of them."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from rootful.at_terminal import at_terminal
from rootful.cluster.agents import GIVEN_UP, JOB, Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful
_SAYS = "echo begun $SLURM_PROCID; read line; echo got $line; exec sleep 1000"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


def number_of(cluster: Agents, name: str) -> int:
    """Of the step of this name, as soon as it is known: it may not have begun."""
    found: list[int] = []

    def is_there() -> bool:
        steps = json.loads(cluster.nodectl("ps", "--json").stdout)["steps"]
        found[:] = [step["step"] for step in steps if step["name"] == name]
        return bool(found)

    wait_until(is_there, f"{name} is there")
    return found[0]


@contextlib.contextmanager
def step(cluster: Agents, name: str, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    client = cluster.popen("run", "-J", name, *words, stdin=subprocess.PIPE)
    try:
        yield f"{JOB}.{number_of(cluster, name)}", client
    finally:
        cluster.nodectl("signal", "-s", "KILL", f"{JOB}.{number_of(cluster, name)}")
        client.communicate(timeout=GIVEN_UP)


@pytest.mark.parametrize("rank", [0, 2])
def test_what_tasks_of_all_nodes_write_is_shown_with_their_numbers(cluster: Agents, rank: int) -> None:
    with step(cluster, f"labelled{rank}", "-l", "-N3", "-n6", "sh", "-c", _SAYS) as (name, client):
        seen = cluster.popen("attach", "-l", name, rank=rank)
        assert seen.stdout is not None
        assert sorted(seen.stdout.readline() for _ in range(6)) == [f"{task}: begun {task}\n" for task in range(6)]
        assert client.stdin is not None
        client.stdin.write("on\n")
        client.stdin.flush()
        assert sorted(seen.stdout.readline() for _ in range(6)) == [f"{task}: got on\n" for task in range(6)]
        only = cluster.popen("attach", "-l", "--output-filter=4", name, rank=rank)
        assert only.stdout is not None
        assert [only.stdout.readline() for _ in range(2)] == ["4: begun 4\n", "4: got on\n"]
        only.kill()
        only.communicate(timeout=GIVEN_UP)
    assert (seen.communicate(timeout=GIVEN_UP), seen.returncode) == (("", ""), 0)  # it ends with the step


def test_a_terminal_on_another_node_is_typed_at(cluster: Agents) -> None:
    words = ("run", "--pty", "-J", "terminal", "-N1", "-n1", "-w", "n1", "sh")
    with at_terminal(cluster.words(*words), user=cluster.user, **_place(cluster, 0)) as shell:
        shell.line("echo first$((1 + 1))")
        shell.wait_for("first2")
        attach = cluster.words("attach", "--pty", f"{JOB}.{number_of(cluster, 'terminal')}")
        with at_terminal(attach, user=cluster.user, **_place(cluster, 2)) as viewer:
            viewer.wait_for("first2")
            viewer.line("echo second$((1 + 1))")
            viewer.wait_for("second2")
            shell.wait_for("second2")
            shell.line("exit 0")
            assert (shell.wait_for_end(), viewer.wait_for_end()) == (0, 0)


def _place(cluster: Agents, rank: int) -> dict[str, Any]:
    how = cluster.how(rank)
    return {"env": how["env"], "cwd": how["cwd"]}


def test_what_cannot_be_seen_is_refused_as_on_one_node(cluster: Agents) -> None:
    with step(cluster, "plain", "-N3", "-n3", "sleep", "1000") as (name, _):
        done = cluster.nodectl("attach", name, rank=1)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert "--pty, -l or -u of `nodectl run` let others attach" in done.stderr
        layout = cluster.nodectl("attach", "--layout", name).stdout.splitlines()
        assert layout[1] == "  3 tasks, 3 nodes (n[0-2])"
        assert layout[-1] == "  Node 2 (n2), 1 task(s): 2"
    assert "no step" in cluster.nodectl("attach", f"{JOB}.999999").stderr


def test_who_attaches_and_reads_nothing_does_no_harm(cluster: Agents) -> None:
    with step(cluster, "loud", "-l", "-N3", "-n3", "sh", "-c", "read line; seq 300000; exec sleep 1000") as (
        name,
        client,
    ):
        idle = cluster.popen("attach", name, rank=1)
        reads = cluster.popen("attach", "-l", name, rank=2)
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write("on\n")
        client.stdin.flush()
        assert sum(1 for _ in zip(range(900_000), client.stdout, strict=False)) == 900_000
        for one in (idle, reads):
            one.kill()
            one.communicate(timeout=GIVEN_UP)


def stopped(cluster: Agents) -> list[bool]:
    """Of the sleeping tasks, whether they stand still."""
    tasks = [task for rank, _ in enumerate(cluster.names) for task in cluster.children(rank, "sleep 1234")]
    tasks = [task for task in tasks if task.name() == "sleep"]
    return [task.status() == psutil.STATUS_STOPPED or _frozen(task.pid) for task in tasks]


def _frozen(pid: int) -> bool:
    with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
        path = file.read().rpartition("0::")[2].strip()
    try:
        with open(f"/sys/fs/cgroup{path}/cgroup.events", encoding="ascii") as file:
            return "frozen 1" in file.read()
    except OSError:
        return False


def test_a_step_stands_still_on_all_nodes_and_goes_on(cluster: Agents) -> None:
    with step(cluster, "still", "-N3", "-n3", "sleep", "1234") as (name, _):
        cluster.begun("still")
        wait_until(lambda: len(stopped(cluster)) == 3, "all tasks run")
        for job in (name, str(JOB)):
            done = cluster.nodectl("suspend", job, rank=1)
            assert (done.returncode, done.stderr) == (0, "")
            assert "SUSPENDED" in cluster.nodectl("ps", rank=2).stdout
            wait_until(lambda: stopped(cluster) == [True] * 3, "they stand still")
            assert "is suspended already" in cluster.nodectl("suspend", name).stderr
            done = cluster.nodectl("resume", job, rank=2)
            assert (done.returncode, done.stderr) == (0, "")
            wait_until(lambda: stopped(cluster) == [False] * 3, "they run")
