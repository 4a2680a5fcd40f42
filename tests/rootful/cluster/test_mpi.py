"""The tasks of an MPI program find each other over three agents on this machine, and end together."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.cluster.agents import GIVEN_UP, Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful


def _python(name: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-S", "-c", Path(__file__).with_name(name).read_text(encoding="utf-8")


_PROGRAM, _PMI2 = _python("pmi.py"), _python("pmi2.py")
_STEP = ("run", "-N3", "-n6", "--mpi=pmi2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


@pytest.mark.parametrize("program", [_PROGRAM, _PMI2], ids=["pmi1", "pmi2"])
@pytest.mark.parametrize(
    ("options", "mapping"),
    [((), "(vector,(0,3,2))"), (("-m", "cyclic"), "(vector,(0,3,1))")],
)
def test_all_tasks_get_what_each_has_stored(
    cluster: Agents, options: tuple[str, ...], mapping: str, program: tuple[str, ...]
) -> None:
    done = cluster.nodectl(*_STEP, *options, *program)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 6 (6) {mapping} -1" for rank in range(6)]


@pytest.mark.parametrize("task", [0, 5])
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("abort", "task {} called MPI_Abort with code 7"),
        ("exit", "task {} (ended with exit code 3 before MPI_Finalize|has left MPI and others wait for it)"),
        ("leave", "task {} has left MPI and others wait for it"),
        ("malformed", "task {} sent its MPI server what is no message"),
    ],
)
def test_one_task_ends_the_step_on_all_nodes_with_one_reason(cluster: Agents, how: str, why: str, task: int) -> None:
    done = cluster.nodectl(*_STEP, "--no-kill", *_PROGRAM, how, str(task))
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if "the step ends" in line]
    assert len(ours) == 1, done.stderr
    assert re.search(f": {why.format(task)}: the step ends$", ours[0])


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("abort", "task 5 called MPI_Abort with code 1"),
        ("leave", "task 5 has left MPI and others wait for it"),
        ("malformed", "task 5 sent its MPI server what is no message"),
    ],
)
def test_one_task_of_pmi2_does_so_too(cluster: Agents, how: str, why: str) -> None:
    done = cluster.nodectl(*_STEP, *_PMI2, how, "5")
    assert done.returncode != 0
    assert f": {why}: the step ends" in done.stderr


def _hanging(cluster: Agents, task: int) -> subprocess.Popen[str]:
    """A step in which one task keeps all others waiting."""
    client = cluster.popen(*_STEP, "--no-kill", *_PROGRAM, "hang", str(task))
    assert client.stdout is not None
    assert client.stdout.readline().startswith("hangs ")
    cluster.look()
    return client


def _ends(client: subprocess.Popen[str]) -> str:
    _, said = client.communicate(timeout=GIVEN_UP)
    assert client.returncode != 0
    return said


def _kill(cluster: Agents, rank: int, name: str) -> None:
    wait_until(lambda: len(cluster.named(rank, name)) == 1, "that of an earlier step has ended")
    (found,) = cluster.named(rank, name)
    found.kill()


@pytest.mark.parametrize("rank", [0, 2])
def test_a_runner_that_is_killed_ends_the_step_with_a_reason(cluster: Agents, rank: int) -> None:
    client = _hanging(cluster, 3)
    _kill(cluster, rank, "stepd ")
    assert f"n{rank}" in _ends(client)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_server_that_is_killed_ends_the_step_with_a_reason(cluster: Agents, rank: int) -> None:
    client = _hanging(cluster, 3)
    _kill(cluster, rank, "nodectl-pmi")
    assert "its MPI server: it was ended by signal 9: the step ends" in _ends(client)


@pytest.mark.parametrize("node", [0, 2])
def test_tasks_do_not_wait_for_a_node_that_has_none_any_more(cluster: Agents, node: int) -> None:
    script = f'[ "$SLURM_NODEID" = {node} ] || exec "$@"'
    done = cluster.nodectl(*_STEP, "sh", "-c", script, "sh", *_PROGRAM)
    assert done.returncode != 0
    assert f"all tasks on its node {node} have left MPI and others wait for them: the step ends" in done.stderr


def test_a_program_without_mpi_may_end_when_it_likes(cluster: Agents) -> None:
    done = cluster.nodectl(*_STEP, "sh", "-c", "exit 0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_node_that_dies_ends_the_step_whatever_no_kill_says() -> None:
    with agents() as cluster:
        client = _hanging(cluster, 0)
        theirs = cluster.kill_with_all(2)
        assert "n2" in _ends(client)
        wait_until(lambda: not cluster.children(0, "cmd=barrier_in"), "the others have ended")
        wait_until(lambda: not any(one.is_running() for one in theirs), "none of its processes is left")
        cluster.nobody()
