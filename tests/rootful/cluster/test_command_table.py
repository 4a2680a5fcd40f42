"""Every command in a cluster, from the first node and from another one: it works, or says in one line what does."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator

import pytest

from nodectl.client.command import GlobalOptions
from nodectl.client.session import Session
from nodectl.view.live.watcher import Watcher
from rootful.cluster.agents import GIVEN_UP, JOB, Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful
_WORKS = ""
_WAITS = "here `nodectl run` waits for its turn by itself"
# {step} is a step with -l on all nodes, {job} its job; {socket} is that of the node's own daemon.
TABLE = {
    "run -n1 --overlap true": _WORKS,
    "bulk --overlap -j1 true ::: 1": _WORKS,
    "ps": _WORKS,
    "show {step}": _WORKS,
    "trace {step}": _WORKS,
    "explain {step}": _WORKS,
    "queue": _WORKS,
    "node": _WORKS,
    "acct": _WORKS,
    "report": _WORKS,
    "config": _WORKS,
    "plugins": _WORKS,
    "cluster status": _WORKS,
    "attach --layout {step}": _WORKS,
    "signal -s CONT {step}": _WORKS,
    "suspend {step} && nodectl resume {step}": _WORKS,
    "bcast --force /etc/hostname copy": _WORKS,
    "cancel --name nobodys": _WORKS,
    "enter {step} true": "enter is of one node -> `nodectl run --overlap --pty -w NODE sh` is a shell there",
    "login": "logins are those of the machine's service -> `nodectl --socket /run/nodectl/nodectl.sock login`",
    "update {step} --cpu-weight=50": "limits of a step are each node's -> "
    "on each of its nodes `nodectl --socket {socket} update JOB.STEP`",
    "metrics": "metrics are each node's -> on it `nodectl --socket {socket} metrics`",
    "submit --wrap true": f"batch jobs are Slurm's -> its own `sbatch`; {_WAITS}",
    "alloc true": f"allocations are Slurm's -> its own `salloc`; {_WAITS}",
    "run --test-only true": f"the ends of steps are unknown -> `nodectl queue` tells what waits; {_WAITS}",
    "hold {job}": "hold {job}: the job is Slurm's -> its own `scontrol hold JOB`",
    "release {job}": "release {job}: the job is Slurm's -> its own `scontrol release JOB`",
    "requeue {job}": "requeue {job}: the job is Slurm's -> its own `scontrol requeue JOB`",
    "update {job} --nice=5": "the job is Slurm's -> its own `scontrol update JobId=JOB`",
    "node drain out of order": "nodes are Slurm's -> its own `scontrol update NodeName=NODE`",
    "fence": "the fence is each machine's -> there `nodectl --socket /run/nodectl/nodectl.sock fence`",
    "reserve list": "reservations are Slurm's -> its own `scontrol`",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


@pytest.fixture(scope="module")
def step(cluster: Agents) -> Iterator[str]:
    """Its name."""
    client = cluster.popen("run", "-l", "-N3", "-n3", "-J", "sleeper", "sleep", "1000")
    name = cluster.begun("sleeper")
    yield name
    cluster.nodectl("cancel", name)
    client.communicate(timeout=GIVEN_UP)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("line", TABLE)
def test_a_command_in_a_cluster(cluster: Agents, step: str, line: str, rank: int) -> None:
    names = {"step": step, "job": JOB, "socket": cluster.gateway(rank).parent / "node" / "nodectl.sock"}
    for words in line.format(**names).split(" && nodectl "):
        done = cluster.nodectl(*shlex.split(words), rank=rank)
        if TABLE[line] == _WORKS:
            assert (done.returncode, done.stderr) == (0, "")
        else:
            assert (done.returncode, done.stderr) == (1, f"nodectl: error: {TABLE[line].format(**names)}\n")


def test_what_is_of_one_node_works_there_as_the_line_says(cluster: Agents, step: str) -> None:
    del step
    done = cluster.nodectl("run", "--overlap", "-w", "n1", "sh", "-c", "echo I am in $SLURMD_NODENAME")
    assert (done.returncode, done.stdout) == (0, "I am in n1\n"), done.stderr
    line = cluster.nodectl("metrics", rank=1).stderr
    words = shlex.split(line[line.index("`nodectl ") :].strip("`\n"))[1:]
    assert "nodectl_" in cluster.nodectl(*words, rank=1).stdout


@pytest.fixture
def waiting(cluster: Agents, step: str) -> Iterator[list[str]]:
    """Two launches that wait behind the step: their names."""
    clients = [cluster.popen("run", "-N3", "-n3", "--whole", "-J", f"patient{one}", "true") for one in range(2)]
    wait_until(lambda: cluster.nodectl("queue").stdout.count("patient") == 2, "both wait")
    yield re.findall(rf"{JOB}\.[0-9]+", cluster.nodectl("queue").stdout)
    cluster.nodectl("cancel", "--state=PENDING", "--me")
    for client in clients:
        client.communicate(timeout=GIVEN_UP)
        assert client.returncode == 1


def test_what_waits_has_a_name_by_which_it_is_explained_and_cancelled(
    cluster: Agents, step: str, waiting: list[str]
) -> None:
    assert len({*waiting, step}) == 3
    told = cluster.nodectl("explain", waiting[1], rank=1)
    assert told.returncode == 0, told.stderr
    assert f"step {step} (sleeper)" in told.stdout
    assert "other steps have the nodes that it needs" in told.stdout
    assert cluster.nodectl("explain", str(JOB), rank=2).stdout.count("other steps have the nodes") == 1
    assert cluster.nodectl("cancel", "-v", waiting[0], rank=2).stdout == f"{waiting[0]}\n"
    assert re.findall(rf"{JOB}\.[0-9]+", cluster.nodectl("queue").stdout) == waiting[1:]


def test_top_has_what_runs_and_what_waits(cluster: Agents, step: str, waiting: list[str]) -> None:
    """What it shows comes from a watcher, as in `nodectl web`."""
    settings = GlobalOptions()
    settings.config, settings.socket = None, str(cluster.gateway(2))
    with as_user(cluster):
        watcher = Watcher(lambda: Session(settings, start_private=False))
        rows = {row.name: row for row in watcher.look(at_once=True).rows}
        watcher.close()
    assert (rows[step].state, rows[step].ntasks) == ("RUNNING", 3)
    assert [rows[name].state for name in waiting] == ["PENDING"] * 2


@contextlib.contextmanager
def as_user(cluster: Agents) -> Iterator[None]:
    """A gateway lets in nobody else, not even root."""
    os.seteuid(cluster.user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
