"""A signal at any moment of a client's life: either nothing was started, and it ends the client; or it is for the step,
and the client tells how that ended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rootful.moments import Outcome, Programs, Walk
from rootful.node import NOBODY, PATIENCE, Node, running

WAITS = ("run", "run -n2", "run -l", "run -v", "run --mpi=none", "run --pty", "alloc", "bulk")
OWN_STATUS = ("alloc", "bulk")  # their step's is another one
ENDS = ("run", "run -l", "run -v")
GONE = "went away"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def programs(node: Node) -> Programs:
    return Programs(node.scratch)


def how(node: Node) -> Mapping[str, Any]:
    ids = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
    return {"env": {"PATH": "/usr/bin:/bin", "HOME": str(node.scratch)}, "cwd": str(node.scratch), **ids}


class Steps:
    """Those that were launched since one looked last."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._last = self._numbers()

    def _numbers(self) -> set[tuple[int, int]]:
        steps: Any = self._node.call("List", ended=20)["steps"]
        return {(int(step["job"]), int(step["step"])) for step in steps}

    def new(self) -> list[Mapping[str, Any]]:
        """Their records, when they have ended."""
        now = self._numbers()
        found, self._last = now - self._last, now
        return [self._node.call("Wait", job=job, step=step)["record"] for job, step in sorted(found)]  # type: ignore[misc]


def must_be_fair(outcome: Outcome, records: list[Mapping[str, Any]]) -> None:
    """What is true of each client that launches one step."""
    assert "Traceback" not in outcome.err, outcome
    if not records:
        assert outcome.died, outcome
        assert "ready" not in outcome.out, outcome
        return
    (record,) = records
    assert GONE not in record["reason"], (outcome, record)
    assert outcome.status == record["exit_status"], (outcome, record)


@pytest.mark.parametrize("words", WAITS)
def test_a_signal_ends_the_command_or_is_the_tasks(node: Node, programs: Programs, words: str) -> None:
    program = [f"exec {programs.awaits} #{{}}", ":::", "0"] if words == "bulk" else [str(programs.awaits)]
    walk = Walk(
        programs, ["--socket", str(node.socket), *words.split(), *program], terminal="--pty" in words, **how(node)
    )
    total = walk.moments()
    steps = Steps(node)
    for outcome in walk.outcomes(total):
        records = steps.new()
        if words in OWN_STATUS:
            records = [{**record, "exit_status": outcome.status} for record in records]
        must_be_fair(outcome, records)
        if records and words != "bulk":  # which has a step before it has commands
            assert outcome.reached, outcome
        elif records and outcome.number != signal.SIGUSR1:
            assert outcome.died, outcome


@pytest.mark.parametrize("words", ENDS)
def test_a_signal_about_the_end_of_a_step_leaves_its_status(node: Node, programs: Programs, words: str) -> None:
    walk = Walk(
        programs, ["--socket", str(node.socket), *words.split(), str(programs.awaits), "3"], waits=False, **how(node)
    )
    total = walk.moments()
    steps = Steps(node)
    for outcome in walk.outcomes(total):
        records = steps.new()
        must_be_fair(outcome, records)
        if records:
            assert outcome.status in (3, 128 + outcome.number, 128 + signal.SIGTERM), outcome


def test_who_looks_at_a_step_leaves_by_a_signal_and_does_it_no_harm(node: Node, programs: Programs) -> None:
    client = node.popen("-l", "sh", "-c", "echo ready; exec sleep 300", user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "0: ready\n"
    walk = Walk(programs, ["--socket", str(node.socket), "attach", str(node.last_job())], **how(node))
    for outcome in walk.outcomes(walk.moments()):
        assert outcome.died, outcome
        assert "Traceback" not in outcome.err, outcome
    assert client.poll() is None
    client.terminate()
    client.communicate(timeout=PATIENCE)
    assert client.returncode == 128 + signal.SIGTERM


def test_a_job_that_was_submitted_is_told_whatever_comes(node: Node, programs: Programs) -> None:
    walk = Walk(
        programs, ["--socket", str(node.socket), "submit", "--wait", "-o", "/dev/null", "--wrap", "true"],
        waits=False, **how(node),
    )  # fmt: skip
    total = walk.moments()
    before = jobs(node)
    for outcome in walk.outcomes(total):
        assert "Traceback" not in outcome.err, outcome
        assert outcome.died or outcome.status == 0, outcome
        after = jobs(node)
        assert outcome.out == "".join(f"Submitted batch job {job}\n" for job in after - before), outcome
        before = after


def jobs(node: Node) -> set[int]:
    waiting: Any = node.call("Queue")["jobs"]
    page: Any = node.call("Accounting", of="jobs")
    over = list(page["records"])
    while page["next"]:
        page = node.call("Accounting", of="jobs", next=page["next"])
        over += page["records"]
    return {int(job.get("job") or job["job_id"]) for job in (*waiting, *over)}
