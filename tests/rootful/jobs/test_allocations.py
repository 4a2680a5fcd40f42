"""Steps within an allocation: they wait for each other's CPUs and devices or share them, and have its container."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.contained import contained
from rootful.node import NOBODY, Node, running

CPUS = len(os.sched_getaffinity(0))
OWN = {"select_type": "select/cons_tres", "over_subscribe": "no"}
SHOW = "grep Cpus_allowed_list /proc/self/status | cut -f2"

pytestmark = pytest.mark.skipif(CPUS < 2, reason="one CPU cannot be shared out")


def tool(node: Node) -> Path:
    """A program that is `nodectl run`."""
    path = node.dir / "run-step"
    path.write_text(f'#!/bin/sh\nexec {shlex.join(node.command("run"))} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    """A node with devices, where jobs get CPUs of their own."""
    with running(gres=["Name=gpu Count=4"], **OWN) as node:
        tool(node)
        yield node


def alloc(node: Node, script: str, *words: str) -> tuple[list[str], str]:
    """What a shell in an allocation says, where `step` is `nodectl run`; and what is said on stderr."""
    text = f'step() {{ "{node.dir}/run-step" "$@"; }}\n{script}'
    done = node.nodectl("alloc", *words, "sh", "-c", text, user=NOBODY)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.splitlines(), done.stderr


def test_steps_take_turns_where_each_takes_all_of_the_job(served: Node) -> None:
    one = "step -n1 sh -c 'mkdir lock && echo alone; until [ -e go ]; do sleep 0.01; done; rmdir lock' 2>>waits &"
    both_wait = "[ $(grep -c 'step creation temporarily disabled' waits) -ge 2 ]"
    script = f": >waits; {one} {one} {one} until {both_wait}; do sleep 0.01; done; : >go; wait; rm waits go"
    said, _ = alloc(served, script, f"-n{CPUS}")
    assert said == ["alone"] * 3


def test_a_step_keeps_the_name_and_the_times_of_its_job(served: Node) -> None:
    told = "echo $SLURM_JOB_NAME $SLURM_JOB_START_TIME $SLURM_JOB_END_TIME"
    said, _ = alloc(served, f"{told}; sleep 1.1; step -n1 --time=1 sh -c '{told}'", "--job-name=mine", "--time=9")
    assert len(said) == 2
    assert said[0] == said[1]
    name, start, end = said[0].split()
    assert (name, int(end) - int(start)) == ("mine", 540)


def test_steps_that_overlap_run_at_once_on_the_same_cpus(served: Node) -> None:
    meet = f"step -n1 --overlap sh -c ': >$0; until [ -e here1 ] && [ -e here2 ]; do sleep 0.01; done; {SHOW}'"
    said, _ = alloc(served, f"{meet} here1 & {meet} here2 & wait; rm here1 here2", f"-n{CPUS}")
    assert len(said) == 2


def test_exact_steps_run_at_once_on_cpus_of_their_own(served: Node) -> None:
    meet = f"step -n1 --exact sh -c ': >$0; until [ -e here1 ] && [ -e here2 ]; do sleep 0.01; done; {SHOW}'"
    said, _ = alloc(served, f"{meet} here1 & {meet} here2 & wait; rm here1 here2", f"-n{CPUS}")
    assert len(set(said)) == 2


def test_a_step_that_does_not_wait_says_that_its_cpus_are_taken(served: Node) -> None:
    script = (
        "step -n1 sh -c ': >here; until [ -e go ]; do sleep 0.01; done' & until [ -e here ]; do sleep 0.01; done\n"
        "step -n1 --immediate true; echo $?; : >go; wait; rm go here"
    )
    said, complained = alloc(served, script, f"-n{CPUS}")
    assert said == ["1"]
    assert "Requested nodes are busy" in complained


def test_devices_of_the_job_are_dealt_out_to_its_steps(served: Node) -> None:
    seen = "echo $CUDA_VISIBLE_DEVICES"
    meet = f"step -n1 --exact --gpus=1 sh -c ': >$0; until [ -e here1 ] && [ -e here2 ]; do sleep 0.01; done; {seen}'"
    script = f"{seen}; step -n1 sh -c '{seen}'; {meet} here1 & {meet} here2 & wait; step -n1 --exact sh -c 'echo none'"
    said, _ = alloc(served, script + "; rm here1 here2", f"-n{CPUS}", "--gpus=2")
    assert said[-4] == "0,1"  # all that the job has
    assert sorted(said[-3:-1]) == ["0", "1"]
    refused = served.nodectl(
        "alloc", f"-n{CPUS}", "--gpus=1", str(served.dir / "run-step"), "--gpus=2", "true", user=NOBODY
    )
    assert refused.returncode == 1
    assert "GPU" in refused.stderr


def test_steps_of_an_allocation_share_its_container() -> None:
    with contained(**OWN) as found:
        node = found.node
        tool(node)
        said, _ = alloc(node, "step -n1 touch /tmp/kept; step -n1 ls /tmp", "-n1")
        assert said == ["kept"]
        script = node.scratch / "script"
        script.write_text(f"#!/bin/sh\ntouch /tmp/of-script; {node.dir}/run-step -n1 ls /tmp\n", encoding="utf-8")
        done = node.nodectl("submit", "--wait", "--output=said", str(script), user=NOBODY)
        assert done.returncode == 0, done.stderr
        assert (node.scratch / "said").read_text(encoding="utf-8") == "of-script\n"
        found.assert_gone()
