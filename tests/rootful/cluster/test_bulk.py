"""`nodectl bulk` over three agents on this machine."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.cluster.agents import GIVEN_UP, Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful


@pytest.fixture
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


def bulk(cluster: Agents, *words: str, count: int) -> tuple[subprocess.Popen[str], str]:
    """A command that runs, and what it is to read."""
    client = cluster.popen("bulk", "--nodes=3", *words, stdin=subprocess.PIPE)
    return client, "".join(f"{number}\n" for number in range(count))


def begun_on_all(cluster: Agents, *, count: int) -> tuple[subprocess.Popen[str], Path]:
    """A command that runs, all of whose slots have one of its commands, which end when `go` is there; and the file in
    which each says that it has begun.
    """
    program = "echo {} $SLURMD_NODENAME {%} $PARALLEL_JOBSLOT >> begun; while [ ! -e go ]; do sleep 0.05; done; echo {}"
    client, given = bulk(cluster, "-j6", program, count=count)
    give_all(client, given)
    begun = cluster.home / "begun"
    wait_until(lambda: begun.exists() and len(begun.read_text().splitlines()) == 6, "all slots have a command")
    return client, begun


def give_all(client: subprocess.Popen[str], given: str) -> None:
    assert client.stdin is not None
    client.stdin.write(given)
    client.stdin.close()
    client.stdin = None


def end_once_more(cluster: Agents, client: subprocess.Popen[str], begun: Path, *, count: int) -> None:
    """All commands have run; those that were lost have begun for the second time. That is no failure."""
    (cluster.home / "go").touch()
    out, error = client.communicate(timeout=GIVEN_UP)
    assert sorted(map(int, out.split())) == list(range(count)), error
    assert client.returncode == 0, error
    began = Counter(line.split()[0] for line in begun.read_text().splitlines())
    assert max(began.values()) == 2, "once more, and no more"


def test_commands_run_on_all_nodes(cluster: Agents) -> None:
    client, given = bulk(cluster, "-k", "-j6", "echo {} $SLURMD_NODENAME", count=200)
    out, error = client.communicate(given, GIVEN_UP)
    rows = [line.split() for line in out.splitlines()]
    assert [int(number) for number, _ in rows] == list(range(200)), error
    assert {node for _, node in rows} == {"n0", "n1", "n2"}
    assert client.returncode == 0


def test_no_two_slots_of_all_nodes_have_one_number(cluster: Agents) -> None:
    client, begun = begun_on_all(cluster, count=12)
    assert sorted(line.split()[2:] for line in begun.read_text().splitlines()) == [[n, n] for n in "123456"]
    (cluster.home / "go").touch()
    _, error = client.communicate(timeout=GIVEN_UP)
    assert client.returncode == 0, error


def test_lines_of_commands_that_run_are_tagged_with_that_number(cluster: Agents) -> None:
    program = "echo {} $PARALLEL_JOBSLOT; while [ ! -e go ]; do sleep 0.05; done"
    client, given = bulk(cluster, "-j6", "--line-buffer", "--tagstring", "{%}", program, count=6)
    give_all(client, given)
    assert client.stdout is not None
    rows = [client.stdout.readline().split() for _ in range(6)]
    assert sorted((row[0], row[2]) for row in rows) == [(n, n) for n in "123456"]
    (cluster.home / "go").touch()
    _, error = client.communicate(timeout=GIVEN_UP)
    assert client.returncode == 0, error


def test_failures_are_counted_and_logged(cluster: Agents) -> None:
    client, given = bulk(cluster, "--joblog", "joblog", "-j3", "exit $(({} % 2))", count=20)
    _, error = client.communicate(given, GIVEN_UP)
    assert client.returncode == 10, error
    assert len((cluster.home / "joblog").read_text().splitlines()) == 21


def test_why_a_program_is_not_executed_is_told_by_each_node(cluster: Agents) -> None:
    program = cluster.home / "broken"
    program.write_text("#!/no/such\n")
    program.chmod(0o755)
    client, given = bulk(cluster, "-j6", "./broken {}", count=6)
    _, error = client.communicate(given, GIVEN_UP)
    assert client.returncode == 6, error
    told = [line for line in error.splitlines() if "No such file or directory" in line]
    assert sorted(line.rpartition(" ")[2] for line in told) == list("012345"), error


def test_what_a_lost_node_had_runs_elsewhere(cluster: Agents) -> None:
    client, begun = begun_on_all(cluster, count=30)
    cluster.kill(1)
    wait_until(lambda: not cluster.gateway(1).parent.exists(), "its node has ended, too")
    end_once_more(cluster, client, begun, count=30)


def test_what_a_step_runner_had_that_was_killed_runs_elsewhere(cluster: Agents) -> None:
    client, begun = begun_on_all(cluster, count=30)
    runner = next(one for one in cluster.children(1, "while [ ! -e go") if "-c" in one.cmdline()).parent()
    assert runner is not None
    cluster.look()
    runner.kill()
    wait_until(lambda: not cluster.children(1, "while [ ! -e go"), "its commands have ended, too")
    end_once_more(cluster, client, begun, count=30)


def test_ctrl_c_ends_all_of_it(cluster: Agents) -> None:
    client, given = bulk(cluster, "-u", "-j3", "echo here {}; sleep 1000", count=30)
    give_all(client, given)
    assert client.stdout is not None
    assert [client.stdout.readline()[:4] for _ in range(3)] == ["here"] * 3
    cluster.look()
    client.send_signal(signal.SIGTERM)
    client.communicate(timeout=GIVEN_UP)
    assert client.returncode != 0
    wait_until(lambda: not any(cluster.children(rank, "sleep 1000") for rank in range(3)), "no command is left")
