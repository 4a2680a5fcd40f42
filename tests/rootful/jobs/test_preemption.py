"""More urgent jobs through the real daemon: others are stopped and go on, are queued again, or end, and say why."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.launch.cgroup import tree
from nodectl.model.step_number import BATCH
from rootful.node import NOBODY, PATIENCE, Node, wait_until
from rootful.queued import ENDED, all_cpus, emptied, queue_running, show, state, submit, wait_for, wait_for_file

COUNTS = 'while :; do i=$((i + 1)); echo $i > "$COUNT"; done'


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    with queue_running(
        qos=[
            "Name=normal PreemptMode=suspend",
            "Name=again PreemptMode=requeue",
            "Name=spare PreemptMode=cancel",
            "Name=high Priority=10 Preempt=normal,again,spare",
        ]
    ) as node:
        yield node


@pytest.fixture
def node(module_node: Node) -> Iterator[Node]:
    yield module_node
    emptied(module_node)


def counting(node: Node, *options: str) -> tuple[int, Path]:
    """A job that has all CPUs and counts into a file; both, when it does."""
    file = node.scratch / "count"
    job = submit(node, COUNTS, f"-n{all_cpus(node)}", f"--export=ALL,COUNT={file}", *options)
    wait_for_file(file)
    return job, file


def urgent(node: Node) -> tuple[int, Path]:
    """A more urgent job of all CPUs, whose script runs, and the file for which it waits."""
    gate, begun = node.scratch / "gate", node.scratch / "begun"
    begun.unlink(missing_ok=True)
    script = f'echo >"{begun}"; while [ ! -e "{gate}" ]; do sleep 0.1; done'
    job = submit(node, script, f"-n{all_cpus(node)}", "--qos=high")
    wait_for(node, job, "RUNNING")
    wait_for_file(begun)  # else a kill of the daemon may meet its launch
    return job, gate


def status(node: Node, job: int) -> str:
    """What the stepd of its script says."""
    answer: Any = node.call("Show", job=job, step=BATCH)
    return str(answer["record"]["state"])


def test_a_job_stands_still_for_a_more_urgent_one_and_goes_on_after_it(node: Node) -> None:
    job, file = counting(node)
    other, gate = urgent(node)
    record = wait_for(node, job, "SUSPENDED")
    assert record["reason"] == "Preempted"
    cgroup = json.loads((node.steps / f"{job}.batch.json").read_text())["cgroup"]
    assert not cgroup or tree.Group(f"{tree.find_mount()}{cgroup}/user").is_frozen()
    before = file.read_text()
    explained = node.nodectl("explain", str(job)).stdout
    assert f"job {other} of" in explained, explained
    assert file.read_text() == before, "nothing of it runs"
    gate.write_text("go\n")
    wait_for(node, other, "COMPLETED")
    wait_for(node, job, "RUNNING")
    wait_until(lambda: file.read_text() not in ("", before), "it counts on")
    assert show(node, job)["restarts"] == 0


def test_a_job_is_queued_again_for_a_more_urgent_one_and_runs_after_it(node: Node) -> None:
    job, file = counting(node, "--qos=again")
    other, gate = urgent(node)
    record = wait_for(node, job, "PENDING")
    assert record["restarts"] == 1
    file.unlink()
    gate.write_text("go\n")
    wait_for(node, other, "COMPLETED")
    wait_for(node, job, "RUNNING")
    wait_for_file(file)


def test_a_job_ends_for_a_more_urgent_one_and_says_for_which(node: Node) -> None:
    job, _ = counting(node, "--qos=spare")
    other, gate = urgent(node)
    record = wait_for(node, job, *ENDED)
    assert (record["state"], record["words"]) == ("PREEMPTED", f"preempted by job {other}")
    assert state(node, other) == "RUNNING"
    gate.write_text("go\n")


def test_a_job_that_stands_still_for_another_stays_so_over_a_kill_of_the_daemon(node: Node) -> None:
    job, file = counting(node)
    other, gate = urgent(node)
    wait_for(node, job, "SUSPENDED")
    node.restart(signal.SIGKILL)
    assert (state(node, job), state(node, other)) == ("SUSPENDED", "RUNNING")
    before = file.read_text()
    gate.write_text("go\n")
    wait_for(node, other, "COMPLETED")
    wait_for(node, job, "RUNNING")
    wait_until(lambda: file.read_text() not in ("", before), "it counts on")


def test_a_job_that_makes_room_is_not_let_go_by_its_user_before_it_stands_still(node: Node) -> None:
    job, _ = counting(node)
    other = submit(node, "exec sleep 1000", f"-n{all_cpus(node)}", "--qos=high")
    wait_until(lambda: show(node, job)["preempted_by"] == other, "it is to make room")
    done = node.nodectl("resume", f"{job}.batch", user=NOBODY)
    assert done.returncode != 0
    assert "stays suspended" in done.stderr
    wait_for(node, other, "RUNNING")
    assert state(node, job) == "SUSPENDED"


@pytest.mark.parametrize("by", ["its user", "the queue"])
def test_a_job_that_was_being_stopped_when_the_daemon_died_stands_still(node: Node, by: str) -> None:
    job, file = counting(node)
    asked = None
    if by == "the queue":
        other = submit(node, "exec sleep 1000", f"-n{all_cpus(node)}", "--qos=high")
    else:
        words = node.command("suspend", str(job))
        asked = subprocess.Popen(words, env=node.environment(), stderr=subprocess.DEVNULL)
    wait_until(lambda: status(node, job) == "SUSPENDED", "it is told to stop")
    assert state(node, job) == "RUNNING", "its time of grace is not over"
    node.restart(signal.SIGKILL)
    if asked is not None:
        asked.wait(PATIENCE)
    wait_for(node, job, "SUSPENDED")
    if by == "the queue":
        wait_for(node, other, "RUNNING")
        node.nodectl("cancel", str(other))
    else:
        assert node.nodectl("resume", str(job)).returncode == 0
    wait_for(node, job, "RUNNING")
    before = file.read_text()
    wait_until(lambda: file.read_text() not in ("", before), "it counts on")


def test_a_job_in_its_prolog_is_stopped_for_a_more_urgent_one_when_it_runs() -> None:
    with queue_running(qos=["Name=normal PreemptMode=suspend", "Name=high Priority=10 Preempt=normal"]) as node:
        opened, prolog = node.dir / "opened", node.dir / "prolog"
        prolog.write_text(f"#!/bin/sh\nwhile [ ! -e {opened} ]; do sleep 0.05; done\n", encoding="utf-8")
        prolog.chmod(0o755)
        node.configure(prolog=str(prolog))
        node.restart()
        every = f"-n{all_cpus(node)}"
        job = submit(node, "exec sleep 1000", every)
        wait_for(node, job, "RUNNING")
        other = submit(node, "exec sleep 1000", every, "--qos=high")
        wait_until(lambda: "its prolog is running" in node.logged(), "it is told that the job cannot be suspended yet")
        opened.touch()
        wait_for(node, other, "RUNNING")
        assert state(node, job) == "SUSPENDED"
        emptied(node)
