"""--signal: a job is told before its time is up, once, and whoever it is that it wants to be told."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from rootful.jobs.machine import Client, typed
from rootful.node import NOBODY, Node, wait_until
from rootful.queued import emptied, queue, queue_running, submit, wait_for, wait_for_file

TRAPS = 'trap "echo script told" USR1\ntouch ready\nwhile [ ! -e over ]; do sleep 0.1; done'


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    with queue_running(over_subscribe="force:100") as node:
        yield node


@pytest.fixture
def node(module_node: Node) -> Iterator[Node]:
    yield module_node
    emptied(module_node)


def test_a_script_is_told_before_its_time_is_up_and_once(node: Node) -> None:
    job = submit(node, TRAPS, "--time=60", "--signal=B:USR1@600")
    wait_until((node.scratch / "ready").exists, "it has set its trap")
    assert node.nodectl("update", str(job), "--time=5").returncode == 0
    assert wait_for_file(node.scratch / f"slurm-{job}.out") == "script told\n"
    assert node.nodectl("update", str(job), "--time=9").returncode == 0  # its time is still about to be up
    node.restart(signal.SIGKILL)
    (node.scratch / "over").touch()
    wait_for(node, job, "COMPLETED")
    assert (node.scratch / f"slurm-{job}.out").read_text() == "script told\n"


def test_steps_are_told_and_the_script_is_not(node: Node) -> None:
    told = "trap 'echo step told; exit 0' USR1; touch ready; while :; do sleep 0.1; done"
    step = typed(node, "run", "sh", "-c", told)
    job = submit(node, f'trap "echo script told" USR1\n{step}', "--time=10", "--signal=10@60")
    wait_until((node.scratch / "ready").exists, "the step has set its trap")
    assert node.nodectl("update", str(job), "--time=1").returncode == 0
    wait_for(node, job, "COMPLETED")
    assert (node.scratch / f"slurm-{job}.out").read_text() == "step told\n"


def test_tasks_of_a_run_are_told(node: Node) -> None:
    told = "trap 'echo task told; exit 0' USR1; touch ready.$SLURM_PROCID; while :; do sleep 0.1; done"
    run = node.popen("-n2", "--time=10", "--signal=USR1@60", "sh", "-c", told, user=NOBODY)
    wait_until(lambda: len(list(node.scratch.glob("ready.*"))) == 2, "both tasks have set their traps")
    (job,) = (one["job"] for one in queue(node))
    assert node.nodectl("update", str(job), "--time=1").returncode == 0
    assert (run.communicate()[0], run.returncode) == ("task told\n" * 2, 0)


def test_a_step_in_a_job_has_no_time_limit_to_be_told_of(node: Node) -> None:
    step = typed(node, "run", "--signal=USR1", "true")
    done = node.nodectl("alloc", "sh", "-c", step, user=NOBODY)
    assert done.returncode == 1
    assert "--signal is of a job, and this is a step of one" in done.stderr
    assert "B: is for the scripts" in node.run("--signal=B:USR1", "true", user=NOBODY).stderr


def test_what_holds_an_allocation_is_no_program_of_its_user(node: Node) -> None:
    client = Client(node, "alloc", "sh", "-c", "echo $SLURM_JOB_ID; read line; echo done")
    job = client.line()
    assert node.nodectl("cancel", "--signal", "USR1", job, user=NOBODY).returncode == 0
    assert client.end("go\n") == (0, "done\n")
