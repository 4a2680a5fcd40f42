"""The tasks of a program of PMIx find each other over four agents on this machine, and end together."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from needs import lacks_library
from nodectl.mpi import openpmix
from rootful.cluster.agents import GIVEN_UP, Agents, agents
from rootful.mpi_programs import OPEN_MPI, compiled
from rootful.node import PATH, wait_until

pytestmark = [pytest.mark.rootful, pytest.mark.skipif(lacks_library("libpmix.so.2"), reason="no libpmix here")]
_TEXT = Path(__file__).with_name("pmix.py").read_text(encoding="utf-8")
_PROGRAM = (sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {PATH!r}\n{_TEXT}")
_STEP = ("run", "-N4", "-n8", "--mpi=pmix")
_SERVER = "nodectl-pmix"
_DIRECTORIES = ("PMIX_SERVER_TMPDIR", "OMPI_MCA_btl_vader_backing_directory")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents(4) as started:
        yield started


@pytest.mark.parametrize("how", ["", "ask"], ids=["collected", "asked for"])
@pytest.mark.parametrize(
    ("options", "nodes", "peers"),
    [
        ((), "00112233", ["0,1", "0,1", "2,3", "2,3", "4,5", "4,5", "6,7", "6,7"]),
        (("-m", "cyclic"), "01230123", ["0,4", "1,5", "2,6", "3,7"] * 2),
    ],
    ids=["block", "cyclic"],
)
def test_all_tasks_get_what_each_has_stored(
    cluster: Agents, options: tuple[str, ...], nodes: str, peers: list[str], how: str
) -> None:
    done = cluster.nodectl(*_STEP, *options, *_PROGRAM, how)
    assert (done.returncode, done.stderr) == (0, "")
    places = "/".join(f"n{node}" for node in nodes)
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 8: {places}, {peers[rank]}" for rank in range(8)]


def test_open_mpis_program_needs_no_option(cluster: Agents) -> None:
    program = compiled("cpi", cluster.dir, OPEN_MPI)
    done = cluster.nodectl("run", "-N4", "-n8", program)
    assert (done.stdout, done.returncode, done.stderr) == ("8 tasks: pi is 3.141593\n", 0, "")


def test_open_mpis_tasks_may_ask_for_what_no_fence_has_collected(cluster: Agents) -> None:
    program = compiled("cpi", cluster.dir, OPEN_MPI)
    done = cluster.nodectl("run", "-N4", "-n8", "--export=ALL,OMPI_MCA_pmix_base_async_modex=1", program)
    assert (done.stdout, done.returncode, done.stderr) == ("8 tasks: pi is 3.141593\n", 0, "")


@pytest.mark.parametrize("task", [0, 7])
@pytest.mark.parametrize(
    ("how", "why"),
    [("abort", "task {} called MPI_Abort with code 7"), ("exit", "task {} ended with exit code 3 before MPI_Finalize")],
)
def test_one_task_ends_the_step_on_all_nodes_with_one_reason(cluster: Agents, how: str, why: str, task: int) -> None:
    done = cluster.nodectl(*_STEP, "--no-kill", *_PROGRAM, how, str(task))
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if "the step ends" in line]
    assert len(ours) == 1, done.stderr
    assert re.search(f": {why.format(task)}: the step ends$", ours[0])


@pytest.mark.parametrize("how", ["some", "connect"])
def test_what_is_served_on_one_node_only_is_refused_with_a_line(cluster: Agents, how: str) -> None:
    """And the step goes on."""
    done = cluster.nodectl(*_STEP, *_PROGRAM, how, "5")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 9), done.stderr
    assert f"{how}: -47\n" in done.stdout  # PMIX_ERR_NOT_SUPPORTED
    assert done.stderr.endswith(
        "task 5 asked PMIx for a connection, or a fence of some tasks, which is served on one node only\n"
    )
    assert done.stderr.count("\n") == 1


class _Hanging:
    """A step in which task 3 keeps all others waiting, and the directories of its servers."""

    def __init__(self, cluster: Agents) -> None:
        self.client = cluster.popen(*_STEP, "--no-kill", *_PROGRAM, "hang", "3")
        assert self.client.stdout is not None
        assert self.client.stdout.readline().startswith("hangs ")
        cluster.look()
        tasks = [task.environ() for rank in range(4) for task in cluster.children(rank, "PMIx_Fence")]
        self.directories = {Path(task[name]) for task in tasks for name in _DIRECTORIES if "PMIX_RANK" in task}
        assert len(self.directories) == 8

    def ends(self) -> str:
        """What its user was told."""
        _, said = self.client.communicate(timeout=GIVEN_UP)
        assert self.client.returncode != 0
        return said

    def leaves_nothing(self) -> None:
        wait_until(lambda: not any(map(Path.exists, self.directories)), "its servers' directories are removed")


def _servers(cluster: Agents, rank: int) -> list[psutil.Process]:
    """The one that the runner knows, and the library's."""
    wait_until(lambda: len(cluster.named(rank, _SERVER)) == 2, "those of an earlier step have ended")
    found = cluster.named(rank, _SERVER)
    return found if found[0].ppid() != found[1].pid else found[::-1]


@pytest.mark.parametrize("which", [0, 1], ids=["entrance", "library"])
@pytest.mark.parametrize("rank", [0, 3])
def test_a_server_that_is_killed_ends_the_step_with_a_reason(cluster: Agents, rank: int, which: int) -> None:
    """Its own end, or that of a task which has noticed."""
    step = _Hanging(cluster)
    _servers(cluster, rank)[which].kill()
    assert ": the step ends" in step.ends()
    step.leaves_nothing()


def test_a_step_whose_tasks_wait_for_each_other_can_be_cancelled(cluster: Agents) -> None:
    step = _Hanging(cluster)
    step.client.terminate()
    step.ends()
    step.leaves_nothing()


@pytest.mark.parametrize("node", [0, 3])
def test_tasks_do_not_wait_for_a_node_that_has_none_any_more(cluster: Agents, node: int) -> None:
    script = f'[ "$SLURM_NODEID" = {node} ] || exec "$@"'
    done = cluster.nodectl(*_STEP, "sh", "-c", script, "sh", *_PROGRAM)
    assert done.returncode != 0
    assert f"all tasks on its node {node} have left MPI and others wait for them: the step ends" in done.stderr


def test_tasks_do_not_wait_for_an_answer_that_would_go_by_way_of_a_node_that_has_none(cluster: Agents) -> None:
    """Where they are in no fence. What goes from one node to another one goes by way of the first."""
    script = '[ "$SLURM_NODEID" = 0 ] || exec "$@"'
    done = cluster.nodectl(*_STEP, "sh", "-c", script, "sh", *_PROGRAM, "lone")
    expected = [f"{rank}: {openpmix.NOT_FOUND}" for rank in range(2, 8)]
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, expected, "")


def test_a_program_without_mpi_may_end_when_it_likes(cluster: Agents) -> None:
    done = cluster.nodectl(*_STEP, "sh", "-c", "exit 0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_node_that_dies_ends_the_step_whatever_no_kill_says() -> None:
    with agents(4) as cluster:
        step = _Hanging(cluster)
        theirs = cluster.kill_with_all(3)
        assert "n3" in step.ends()
        wait_until(lambda: not cluster.children(0, "PMIx_Fence"), "the others have ended")
        wait_until(lambda: not any(one.is_running() for one in theirs), "none of its processes is left")
        cluster.nobody()
        for path in filter(Path.exists, step.directories):  # both processes of its server were killed at once
            shutil.rmtree(path)
