"""`nodectl topo` beside a real service: who is on which CPU."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rootful.node import NOBODY, OTHER, PATIENCE, Node


@contextmanager
def running(node: Node, *words: str) -> Iterator[None]:
    """A step of nobody's whose task has said that it runs, and waits for the end of this."""
    step = node.popen(*words, "sh", "-c", "echo runs; read line", user=NOBODY, stdin=subprocess.PIPE)
    try:
        assert step.stdout is not None
        assert step.stdout.readline() == "runs\n"
        yield
    finally:
        step.communicate("\n", PATIENCE)


def test_running_step_is_drawn_with_its_tasks(node: Node) -> None:
    cpu = min(os.sched_getaffinity(0))
    with running(node, f"--cpu-bind=map_cpu:{cpu}", "--job-name=solver"):
        drawn = node.nodectl("topo")
        assert (drawn.returncode, drawn.stderr) == (0, "")
        assert f"task 0 on CPU {cpu} " in drawn.stdout
        (job,) = json.loads(node.nodectl("topo", "--json").stdout)["jobs"]
        assert job["user"] == "nobody"
        assert job["steps"][0]["tasks"] == [{"task": 0, "cpus": str(cpu)}]


def test_others_see_which_cpus_are_taken_as_in_the_queue(node: Node) -> None:
    with running(node, "--job-name=solver"):
        (job,) = json.loads(node.nodectl("queue", "--json", user=OTHER).stdout)["jobs"]
        (drawn,) = json.loads(node.nodectl("topo", "--json", user=OTHER).stdout)["jobs"]
        assert (drawn["job"], drawn["user"], drawn["cpus"]) == (job["job"], "nobody", job["cpu_list"])
        assert drawn["steps"][0]["tasks"] == [], "its step is the other user's"
        assert node.nodectl("topo", user=OTHER).stdout.startswith("machine: ")


@pytest.mark.parametrize("user", [None, NOBODY])
def test_named_service_that_is_not_there_is_an_error(node: Node, user: None) -> None:
    node.stop()
    drawn = node.nodectl("topo", user=user)
    assert (drawn.returncode, drawn.stdout) == (1, "")
    assert "no service at" in drawn.stderr
