"""kill -9 of each process of a cluster, and SIGSTOP: what ran there is told, the rest goes on, nothing is left."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rootful.cluster.agents import GIVEN_UP, Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful
SLEEP = "echo here; exec sleep 1000"


@pytest.fixture
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


def sleeping(cluster: Agents, *options: str) -> subprocess.Popen[str]:
    """A step on all nodes that has begun."""
    client = cluster.popen("run", "-N3", "-n3", *options, "sh", "-c", SLEEP)
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(3)] == ["here\n"] * 3
    cluster.look()
    return client


def sleepers(cluster: Agents) -> list[psutil.Process]:
    return [
        one
        for rank, agent in enumerate(cluster.agents)
        if agent.poll() is None
        for one in cluster.children(rank, "sleep 1000")
    ]


def still_works(cluster: Agents, *options: str, rank: int = 0) -> None:
    done = cluster.nodectl("run", *options, "echo", "well", rank=rank)
    assert (done.returncode, set(done.stdout.split())) == (0, {"well"}), done.stderr + cluster.logged()


def leader(cluster: Agents) -> psutil.Process:
    (found,) = cluster.children(0, "nodectl.cluster.leader")
    return found


def test_a_client_that_is_killed_takes_its_step_along(cluster: Agents) -> None:
    client = sleeping(cluster)
    client.kill()
    client.communicate()
    wait_until(lambda: not sleepers(cluster), "all tasks have ended")
    still_works(cluster, "-N3", "-n3")


def test_a_task_that_is_killed_is_told(cluster: Agents) -> None:
    client = sleeping(cluster, "-K1")
    cluster.children(1, "sleep 1000")[0].kill()
    _, error = client.communicate(timeout=GIVEN_UP)
    assert "n1: task 1: Killed" in error
    assert client.returncode == 128 + signal.SIGTERM  # of the others: as on one node the highest signal counts


@pytest.mark.parametrize("is_signalled_before", [False, True])
def test_what_ignores_sigterm_is_ended_by_a_cancellation(*, is_signalled_before: bool) -> None:
    with agents(config="kill_wait = 1\n") as cluster:
        program = "trap '' TERM; echo here; while :; do sleep 1000; done"
        client = cluster.popen("run", "-N3", "-n3", "sh", "-c", program)
        assert client.stdout is not None
        assert [client.stdout.readline() for _ in range(3)] == ["here\n"] * 3
        cluster.look()
        (step,) = json.loads(cluster.nodectl("ps", "--json").stdout)["steps"]
        if is_signalled_before:
            assert cluster.nodectl("signal", "-s", "TERM", f"{cluster.job}.{step['step']}").returncode == 0
        done = cluster.nodectl("cancel", str(cluster.job), rank=2)
        assert done.returncode == 0, done.stderr
        _, error = client.communicate(timeout=GIVEN_UP)
        assert client.returncode == 128 + signal.SIGKILL, error
        assert error.count("CANCELLED AT") == 1, error
        wait_until(lambda: not sleepers(cluster), "all tasks have ended")
        still_works(cluster, "-N3", "-n3")


def test_a_node_whose_agent_is_killed_is_lost(cluster: Agents) -> None:
    client = sleeping(cluster)
    cluster.kill(1)
    _, error = client.communicate(timeout=GIVEN_UP)
    assert client.returncode != 0
    assert "n1 was lost" in error
    wait_until(lambda: not sleepers(cluster), "all tasks have ended")
    wait_until(lambda: not cluster.gateway(1).parent.exists(), "its node has ended, too")
    still_works(cluster, "-N2", "-n2")
    still_works(cluster, "-N2", "-n2", rank=2)


def test_a_step_may_go_on_without_a_node(cluster: Agents) -> None:
    program = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo done"
    client = cluster.popen("run", "-N3", "-n3", "--no-kill", "sh", "-c", program)
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(3)] == ["here\n"] * 3
    cluster.kill(1)
    wait_until(lambda: not cluster.gateway(1).parent.exists(), "its node has ended, too")
    (cluster.home / "go").touch()
    out, error = client.communicate(timeout=GIVEN_UP)
    assert out.split() == ["done", "done"]
    assert "n1 was lost" in error


def test_a_daemon_that_is_killed_is_followed_and_its_steps_go_on(cluster: Agents) -> None:
    program = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo done"
    client = cluster.popen("run", "-N3", "-n3", "sh", "-c", program)
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(3)] == ["here\n"] * 3
    (daemon,) = cluster.children(1, "of_agent")
    cluster.look()
    daemon.kill()
    still_works(cluster, "-N3", "-n3", "--overlap")
    (cluster.home / "go").touch()
    out, error = client.communicate(timeout=GIVEN_UP)
    assert (out.split(), error, client.returncode) == (["done"] * 3, "", 0)


def test_a_step_runner_that_is_killed_ends_its_step(cluster: Agents) -> None:
    client = sleeping(cluster)
    (task,) = cluster.children(1, "sleep 1000")
    runner = task.parent()
    assert runner is not None
    runner.kill()
    _, error = client.communicate(timeout=GIVEN_UP)
    assert client.returncode != 0, error
    wait_until(lambda: not sleepers(cluster), "all tasks have ended")
    still_works(cluster, "-N3", "-n3")


def test_a_leader_that_is_killed_is_followed_and_steps_go_on(cluster: Agents) -> None:
    program = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo done"
    client = cluster.popen("run", "-N3", "-n3", "sh", "-c", program, rank=1)
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(3)] == ["here\n"] * 3
    first = leader(cluster)
    cluster.look()
    first.kill()
    still_works(cluster, "-N3", "-n3", "--overlap")
    steps = json.loads(cluster.nodectl("ps", "--json").stdout)["steps"]
    assert [step["ntasks"] for step in steps] == [3]
    (cluster.home / "go").touch()
    out, error = client.communicate(timeout=GIVEN_UP)
    assert (out.split(), error, client.returncode) == (["done"] * 3, "", 0)


def test_a_client_that_is_killed_while_the_leader_is_away_takes_its_step_along(cluster: Agents) -> None:
    client = sleeping(cluster)
    first = leader(cluster)
    first.suspend()
    client.kill()
    client.communicate()
    first.kill()
    wait_until(lambda: not sleepers(cluster), "all tasks have ended")
    still_works(cluster, "-N3", "-n3")


def test_commands_wait_for_the_next_leader(cluster: Agents) -> None:
    first = leader(cluster)
    first.suspend()
    clients = [cluster.popen("run", "-N1", "-n1", "--overlap", "echo", "well", rank=rank) for rank in range(3)]
    for client in clients:
        wait_until(lambda client=client: _has_asked(client), "it has asked")
    cluster.look()
    first.kill()
    for client in clients:
        out, error = client.communicate(timeout=GIVEN_UP)
        assert (out, client.returncode) == ("well\n", 0), error


def _has_asked(client: subprocess.Popen[str]) -> bool:
    """Whether a client that waits for its answer has its socket: it has no other."""
    assert client.poll() is None, client.communicate()
    with contextlib.suppress(FileNotFoundError):  # one that it has just closed
        return any(path.readlink().name.startswith("socket:") for path in Path(f"/proc/{client.pid}/fd").iterdir())
    return False


def test_an_agent_that_stood_still_for_a_moment_is_not_lost(cluster: Agents) -> None:
    """Its task ends meanwhile, and those of the others."""
    program = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo done"
    client = cluster.popen("run", "-N3", "-n3", "sh", "-c", program)
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(3)] == ["here\n"] * 3
    tasks = [task for rank in range(3) for task in cluster.children(rank, "while [ ! -e go")]
    agent = psutil.Process(cluster.agents[1].pid)
    agent.suspend()
    (cluster.home / "go").touch()
    psutil.wait_procs(tasks, timeout=GIVEN_UP)
    agent.resume()
    out, error = client.communicate(timeout=GIVEN_UP)
    assert (out.split(), error, client.returncode) == (["done"] * 3, "", 0)


def test_a_daemon_that_somebody_has_stopped_ends_with_its_agent(cluster: Agents) -> None:
    client = sleeping(cluster)
    (daemon,) = cluster.children(1, "of_agent")
    daemon.suspend()
    agent = cluster.agents[1]
    assert agent.stdin is not None
    agent.stdin.close()
    agent.wait(GIVEN_UP)
    client.communicate(timeout=GIVEN_UP)
    wait_until(lambda: not sleepers(cluster), "all tasks have ended")
    wait_until(lambda: not cluster.gateway(1).parent.exists(), "nothing is left there")


def test_an_agent_killed_with_its_daemon_leaves_a_directory_to_the_next_one(cluster: Agents) -> None:
    client = sleeping(cluster)
    theirs = cluster.kill_with_all(1, "of_agent")
    client.communicate(timeout=GIVEN_UP)
    assert client.returncode != 0
    wait_until(lambda: not any(one.is_running() for one in theirs), "none of its processes is left")
    assert cluster.gateway(1).parent.is_dir()
    cluster.nobody()
    assert not cluster.gateway(1).parent.exists()
