"""--signal: a job is told before its time is up, once, and whoever it is that it wants to be told."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from rootful.jobs.machine import Client, typed
from rootful.node import NOBODY, Node, wait_until
from rootful.queued import emptied, queue_running, submit, wait_for, wait_for_file

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


def test_what_holds_an_allocation_is_no_program_of_its_user(node: Node) -> None:
    client = Client(node, "alloc", "sh", "-c", "echo $SLURM_JOB_ID; read line; echo done")
    job = client.line()
    assert node.nodectl("cancel", "--signal", "USR1", job, user=NOBODY).returncode == 0
    assert client.end("go\n") == (0, "done\n")
