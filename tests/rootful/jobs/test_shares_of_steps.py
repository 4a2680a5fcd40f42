"""Steps of one job: never on the same CPUs unless asked, refused as busy while they cannot have them, woken after."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from rootful.node import NOBODY, PATIENCE, Node, running, wait_for_answer

CPUS = sorted(os.sched_getaffinity(0))
SHOW = "grep Cpus_allowed_list /proc/self/status | cut -f2"

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU cannot be shared out")


@pytest.fixture(scope="module")
def alone() -> Iterator[Node]:
    """A node whose jobs have the machine for themselves."""
    with running(select_type="select/linear", over_subscribe="no") as node:
        yield node


class Waiting:
    """A step that tells its CPUs and waits; `end` lets it go."""

    def __init__(self, node: Node, *words: str) -> None:
        self.client = node.popen(*words, "sh", "-c", f"{SHOW}; read x", user=NOBODY, stdin=subprocess.PIPE)
        assert self.client.stdout is not None
        self.cpus = self.client.stdout.readline().strip()
        assert self.cpus, self.client.communicate()
        wait_for_answer(self.client)

    def end(self) -> None:
        self.client.communicate("\n", timeout=PATIENCE)
        assert self.client.returncode == 0


def launch(node: Node, job: int, **layout: str) -> dict[str, object]:
    """Asks for a further step, as a client that does not wait: the reply, or the error."""
    request = {
        "argv": ["sleep", "0"], "environment": {}, "cwd": "/", "ntasks": 1, "jobid": job, "layout": layout,
        "stdout": "none", "uid": NOBODY.pw_name,
    }  # fmt: skip
    return dict(node.call("Launch", request=request))


def is_busy(reply: dict[str, object], job: int) -> bool:
    parameters = {"reason": "Requested nodes are busy", "job": job}
    return reply == {"error": "org.nodectl.Busy", "parameters": parameters}


def test_a_step_that_takes_all_of_its_job_keeps_others_waiting_but_those_that_overlap(alone: Node) -> None:
    first = Waiting(alone)
    job = alone.last_job()
    assert is_busy(launch(alone, job), job)
    assert is_busy(launch(alone, job, exact="1"), job)
    overlapping = Waiting(alone, f"--jobid={job}", "--overlap")
    assert overlapping.cpus == first.cpus
    assert is_busy(launch(alone, job), job)  # the first has all still
    overlapping.end()
    first.end()


def test_exact_steps_have_cpus_of_their_own_until_there_are_no_more(alone: Node) -> None:
    first = Waiting(alone, "--exact")
    job = alone.last_job()
    steps, refused = [first], False
    for _ in CPUS:
        reply = launch(alone, job, exact="1")
        if is_busy(reply, job):
            refused = True
            break
        alone.call("Wait", job=job, step=reply["step"])
        steps.append(Waiting(alone, f"--jobid={job}", "--exact"))
    assert refused
    assert len({step.cpus for step in steps}) == len(steps) > 1
    assert is_busy(launch(alone, job), job)
    steps.pop().end()
    reply = launch(alone, job, exact="1")
    assert reply["job"] == job, reply
    alone.call("Wait", job=job, step=reply["step"])
    for step in reversed(steps):
        step.end()


def test_a_refused_step_takes_no_number(alone: Node) -> None:
    first = Waiting(alone)
    job = alone.last_job()
    for _ in range(5):
        assert is_busy(launch(alone, job), job)
    assert launch(alone, job, overlap="1")["step"] == 1
    first.end()


def test_a_step_gets_no_cpus_of_a_job_that_stands_still(alone: Node) -> None:
    first = Waiting(alone, "--exact")
    job = alone.last_job()
    assert alone.nodectl("suspend", f"{job}.0", user=NOBODY).returncode == 0
    assert is_busy(launch(alone, job, overlap="1"), job)
    assert alone.nodectl("resume", f"{job}.0", user=NOBODY).returncode == 0
    assert launch(alone, job, overlap="1")["job"] == job
    first.end()
