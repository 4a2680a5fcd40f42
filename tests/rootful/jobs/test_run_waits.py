"""nodectl run on a busy machine: its job waits for its turn, and is its client's."""

from __future__ import annotations

import signal

import pytest

from rootful.jobs.machine import CPUS, FOREVER, Client, queue, runs, state, wrap
from rootful.node import NOBODY, OTHER, Node, wait_until


@pytest.fixture
def node(queued: Node) -> Node:
    """Whose jobs take turns."""
    return queued


@pytest.fixture
def full(node: Node) -> int:
    """A job that has the whole machine."""
    job = wrap(node, FOREVER, f"-n{CPUS}", user=OTHER)
    runs(node, job)
    return job


def test_a_run_waits_for_its_turn_and_says_so_once(node: Node, full: int) -> None:
    client = Client(node, "run", "sh", "-c", "echo $SLURM_JOB_ID; read x")
    client.until_told("queued and waiting for resources")
    (waiting,) = [one for one in queue(node) if one["state"] == "PENDING"]
    assert waiting["held_by"] == "run"
    node.nodectl("cancel", str(full))
    assert client.line() == str(waiting["job"]), client.told()
    assert client.end("\n")[0] == 0
    first, second = client.told().splitlines()
    assert first.startswith(f"nodectl: job {waiting['job']} queued and waiting for resources")
    assert second == f"nodectl: job {waiting['job']} has been allocated resources"


def test_several_people_share_the_machine_without_waiting(node: Node) -> None:
    clients = [Client(node, "run", "sh", "-c", "echo here; read x") for _ in range(CPUS)]
    for client in clients:
        assert client.line() == "here", client.told()
    assert all(client.end("\n")[0] == 0 for client in clients)


def test_who_interrupts_a_waiting_run_leaves_nothing(node: Node, full: int) -> None:
    client = Client(node, "run", "true")
    client.until_told("queued and waiting for resources")
    client.signal(signal.SIGINT)
    assert client.end()[0] == 130
    assert [one["job"] for one in queue(node)] == [full]


def test_a_run_that_may_not_wait_does_not(node: Node, full: int) -> None:
    done = node.run("--immediate", "true", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    told = "nodectl: error: Unable to allocate resources: Requested nodes are busy -> without --immediate it waits"
    assert done.stderr.startswith(told)
    assert [one["job"] for one in queue(node)] == [full]


def test_a_waiting_run_outlives_the_service(node: Node, full: int) -> None:
    client = Client(node, "run", "echo", "turn")
    client.until_told("queued and waiting for resources")
    node.restart(signal.SIGKILL)
    node.nodectl("cancel", str(full))
    assert client.end() == (0, "turn\n")


def test_a_waiting_run_that_others_cancel_ends(node: Node, full: int) -> None:
    client = Client(node, "run", "true")
    client.until_told("queued and waiting for resources")
    (waiting,) = [one["job"] for one in queue(node) if one["state"] == "PENDING"]
    assert node.nodectl("cancel", str(waiting), user=OTHER).returncode == 1
    assert node.nodectl("cancel", str(waiting), user=NOBODY).returncode == 0
    assert client.end()[0] == 1
    assert f"job {waiting} ended before it began: CANCELLED" in client.told()
    assert state(node, full) == "RUNNING"


def test_options_of_waiting_count(node: Node) -> None:
    later = Client(node, "run", "--begin=now+1hour", "echo", "later")
    later.until_told("queued and waiting for resources")
    (waiting,) = queue(node)
    assert node.nodectl("update", str(waiting["job"]), "--begin=now", user=NOBODY).returncode == 0
    assert later.end() == (0, "later\n")
    client = Client(node, "run", "--hold", "echo", "released")
    client.until_told("queued and waiting for resources")
    (waiting,) = queue(node)
    assert node.nodectl("release", str(waiting["job"]), user=NOBODY).returncode == 0
    assert client.end() == (0, "released\n")


def test_exclusive_runs_have_the_machine_to_themselves(node: Node) -> None:
    alone = Client(node, "run", "--exclusive", "sh", "-c", "echo here; read x")
    assert alone.line() == "here", alone.told()
    done = node.run("--immediate", "true", user=NOBODY)
    assert done.returncode == 1
    variables = {"SLURM_EXIT_IMMEDIATE": "9", "SLURM_IMMEDIATE": ""}
    assert node.run("true", user=NOBODY, env=variables).returncode == 9
    silent = Client(node, "run", "-Q", "echo", "on")
    wait_until(lambda: len(queue(node)) == 2, "it waits")
    assert alone.end("\n")[0] == 0
    assert (silent.end(), silent.told()) == ((0, "on\n"), "")
    wait_until(lambda: not queue(node), "it is over")


def test_who_asks_for_the_machine_without_a_number_of_tasks_gets_it(node: Node) -> None:
    done = node.run("--exclusive", "sh", "-c", "echo $SLURM_NTASKS $SLURM_CPUS_ON_NODE", user=NOBODY)
    assert done.stdout == f"1 {CPUS}\n", done.stderr
    done = node.run("--exclusive", "-c1", "sh", "-c", "echo $SLURM_NTASKS", user=NOBODY)
    assert done.stdout == f"{CPUS}\n" * CPUS, done.stderr
    done = node.run("--exclusive", "-n1", "-c1", "sh", "-c", "echo $SLURM_CPUS_ON_NODE", user=NOBODY)
    assert done.stdout == "1\n", done.stderr


def test_a_step_with_cpus_for_each_task_and_no_number_of_them_fills_its_job(node: Node) -> None:
    words = [f"-n{CPUS}", *node.command("run", "-c1", "sh", "-c", "echo task of $SLURM_NTASKS")]
    script = 'unset SLURM_NTASKS SLURM_NPROCS; exec "$@"'
    done = node.nodectl("alloc", words[0], "sh", "-c", script, "sh", *words[1:], user=NOBODY)
    assert done.stdout == f"task of {CPUS}\n" * CPUS, done.stderr


def test_more_tasks_than_cpus_go_on_working(node: Node) -> None:
    done = node.run(f"-n{3 * CPUS}", "echo", "task", user=NOBODY)
    assert done.stdout == "task\n" * 3 * CPUS, done.stderr
