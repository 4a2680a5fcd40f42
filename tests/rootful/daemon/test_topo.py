"""`nodectl topo` beside a real service: who is on which CPU."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rootful.node import NOBODY, OTHER, PATIENCE, Node
from rootful.node import running as one_node


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


def test_devices_without_a_file_and_parts_of_devices_are_shown_with_their_holders() -> None:
    gres = ["Name=gpu Count=1", "Name=gpu File=/dev/zero", "Name=shard Count=4 File=/dev/zero"]
    with (
        one_node(select_type="select/cons_tres", over_subscribe="force:4", gres=gres) as node,
        running(node, "--mem=10M", "--gres=shard:1"),
        running(node, "--mem=10M", "--gres=gpu:1"),
    ):
        held = {job["gres"]: job["job"] for job in json.loads(node.nodectl("queue", "--json").stdout)["jobs"]}
        assert sorted(held) == ["gpu:0", "gpu:1/shard:1"]
        for user in (None, OTHER):
            assert node.nodectl("topo", user=user).stdout.split("\n\n")[-2].splitlines() == [
                "DEVICE         HELD BY",
                f"gpu:0          job {held['gpu:0']}",
                f"gpu:1/shard:4  job {held['gpu:1/shard:1']} shard:1",
            ]
        drawn = json.loads(node.nodectl("topo", "--json").stdout)
        assert sorted(drawn["gres"]) == ["gpu:0", "gpu:1/shard:4"]
        assert sorted(device for job in drawn["jobs"] for device in job["devices"]) == sorted(held)
