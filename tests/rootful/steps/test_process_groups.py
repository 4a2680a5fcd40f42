"""proctrack/pgid: the step's process group is its container from before the first task to the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_until

CONTAINER = """
def _say(call, number):
    with open({scratch!r} + "/said", "a") as file:
        file.write(f"{{call}} {{number}}\\n")
    return 0
def container_p_add_cont(job_id, cont_id):
    return _say("add_cont", cont_id)
"""


@pytest.fixture
def grouped() -> Iterator[Node]:
    """A node that tracks by process groups, and whose job_container plugin writes down what it is told."""
    node = Node(proctrack_type="proctrack/pgid", job_container_type="job_container/told")
    node.plugin("told", CONTAINER.format(scratch=str(node.scratch)), "job_container")
    try:
        yield node.start()
        node.assert_clean()
        wait_until(lambda: not leaders(node), "no leader of a group is left")
    finally:
        node.close()


def leaders(node: Node) -> list[str]:
    """What leads the group of a step that has been told of."""
    said = node.scratch / "said"
    numbers = {line.split()[1] for line in said.read_text(encoding="ascii").splitlines()} if said.exists() else set()
    return [number for number in numbers if Path(f"/proc/{number}").exists()]


def told(node: Node) -> list[str]:
    return (node.scratch / "said").read_text(encoding="ascii").splitlines()


GROUP = "ps -o pgid= -p $$ | tr -d ' '"


def test_the_container_is_the_group_of_all_tasks_in_steps_and_visits(grouped: Node) -> None:
    script = f"{GROUP} > group.$SLURM_PROCID; until [ -e end ]; do sleep 0.02; done"
    client = grouped.popen("-n2", "sh", "-c", script, user=NOBODY)
    files = [grouped.scratch / f"group.{rank}" for rank in (0, 1)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in files), "both tasks have told")
    groups = {path.read_text(encoding="ascii").strip() for path in files}
    assert told(grouped) == [f"add_cont {group}" for group in groups]
    assert len(groups) == 1
    assert grouped.nodectl("enter", str(grouped.last_job()), "true", user=NOBODY).returncode == 0
    assert told(grouped) == [f"add_cont {group}" for group in groups] * 2
    (grouped.scratch / "end").touch()
    assert client.wait(PATIENCE) == 0
    client.communicate()


def test_the_step_is_killed_with_what_its_tasks_started(grouped: Node) -> None:
    client = grouped.popen("-n2", "sh", "-c", "sleep 1000 & touch begun.$SLURM_PROCID; wait", user=NOBODY)
    files = [grouped.scratch / f"begun.{rank}" for rank in (0, 1)]
    wait_until(lambda: all(path.exists() for path in files), "both have begun")
    assert grouped.nodectl("signal", "-s", "KILL", str(grouped.last_job()), user=NOBODY).returncode == 0
    assert client.wait(PATIENCE) == 128 + signal.SIGKILL
    client.communicate()


def test_a_user_cannot_end_who_leads_the_group(grouped: Node) -> None:
    script = f"trap '' TERM; kill -TERM 0; kill -KILL $({GROUP}) 2>&1; echo still there"
    done = grouped.run("sh", "-c", script, user=NOBODY)
    assert done.returncode == 0
    assert "not permitted" in done.stdout
    assert done.stdout.endswith("still there\n")


def test_the_leader_ends_with_a_step_runner_that_is_killed(grouped: Node) -> None:
    client = grouped.popen("sh", "-c", "touch begun; sleep 1000", user=NOBODY)
    wait_until((grouped.scratch / "begun").exists, "it has begun")
    record = grouped.call("Show", job=grouped.last_job(), step=0)["record"]
    os.kill(int(record["pid"]), signal.SIGKILL)  # type: ignore[index]
    assert client.wait(PATIENCE) == 1
    client.communicate()
