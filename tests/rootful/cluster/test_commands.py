"""Commands that are typed on a node of a cluster: what runs on all of them, what waits, what has ended."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from rootful.cluster.agents import GIVEN_UP, JOB, Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


def told(cluster: Agents, *words: str, rank: int = 0) -> Any:
    done = cluster.nodectl(*words, "--json", rank=rank)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def running(cluster: Agents) -> list[dict[str, Any]]:
    return list(told(cluster, "ps")["steps"])


@pytest.fixture
def sleeper(cluster: Agents) -> Iterator[str]:
    """A step on all nodes, by its name."""
    client = cluster.popen("run", "-N3", "-n3", "-J", "sleeper", "sleep", "1000")
    name = cluster.begun("sleeper")
    yield name
    cluster.nodectl("cancel", name)
    client.communicate(timeout=GIVEN_UP)
    wait_until(lambda: not running(cluster), "it has ended")


def test_any_node_sees_a_step_of_another_and_its_parts(cluster: Agents, sleeper: str) -> None:
    [step] = told(cluster, "ps", rank=2)["steps"]
    assert (step["name"], step["state"], step["ntasks"], step["node"]) == ("sleeper", "RUNNING", 3, "n[0-2]")
    record = told(cluster, "show", sleeper, rank=1)
    assert [(row["node"], row["tasks"]) for row in record["nodes"]] == [("n0", "0"), ("n1", "1"), ("n2", "2")]
    assert [row["task"] for row in record["tasks"]] == [0, 1, 2]
    shown = cluster.nodectl("show", sleeper, rank=1).stdout
    assert "CPUs:       3 in all" in shown
    assert "n2    2      begun" in shown


def test_nodes_tell_what_of_them_is_taken(cluster: Agents, sleeper: str) -> None:
    del sleeper
    rows = told(cluster, "node")["nodes"]
    assert [(row["name"], row["cpus_used"], row["running"]) for row in rows] == [
        ("n0", 1, 1),
        ("n1", 1, 1),
        ("n2", 1, 1),
    ]


def test_a_launch_that_does_not_fit_waits_in_the_queue_and_then_runs(cluster: Agents, sleeper: str) -> None:
    waiting = cluster.popen("run", "-N3", "-n3", "--whole", "-J", "patient", "true")
    wait_until(lambda: [row["name"] for row in told(cluster, "queue")["jobs"]] == ["patient"], "it waits")
    done = cluster.nodectl("run", "-N3", "-n3", "--whole", "--immediate", "true")
    assert (done.returncode, "Requested nodes are busy" in done.stderr) == (1, True)
    cluster.nodectl("cancel", sleeper)
    waiting.communicate(timeout=GIVEN_UP)
    assert waiting.returncode == 0


def test_who_does_not_wait_any_more_is_out_of_the_queue(cluster: Agents, sleeper: str) -> None:
    del sleeper
    waiting = cluster.popen("run", "-N3", "-n3", "--whole", "true")
    wait_until(lambda: len(told(cluster, "queue")["jobs"]) == 1, "it waits")
    waiting.kill()
    waiting.communicate(timeout=GIVEN_UP)
    wait_until(lambda: not told(cluster, "queue")["jobs"], "nobody waits")


def test_steps_beside_each_other_have_cpus_of_their_own(cluster: Agents) -> None:
    words = ("run", "-n1", "-w", "n1", "--cpu-bind=cores", "sh", "-c", "grep Cpus_allowed_list /proc/self/status; cat")
    first, second = (cluster.popen(*words, stdin=subprocess.PIPE) for _ in range(2))
    wait_until(lambda: len(running(cluster)) == 2, "both run")
    lines = [client.communicate("", GIVEN_UP)[0] for client in (first, second)]
    assert len(set(lines)) == 2


def test_trace_and_explain_are_of_the_steps_first_node(cluster: Agents, sleeper: str) -> None:
    wait_until(lambda: "exec" in cluster.nodectl("trace", sleeper).stdout, "its first node has told of the task")
    assert "laid out with the step's other nodes" in cluster.nodectl("explain", sleeper).stdout


def test_what_has_ended_is_known_with_what_each_node_used(cluster: Agents) -> None:
    client = cluster.popen("run", "-N3", "-n3", "-J", "bad", "sh", "-c", "exit $SLURM_NODEID")
    client.communicate(timeout=GIVEN_UP)
    [step] = [one for one in told(cluster, "ps", "-a")["steps"] if one["name"] == "bad"]
    record = told(cluster, "show", f"{JOB}.{step['step']}")
    assert (record["state"], record["exit_status"]) == ("FAILED", 2)
    assert [row["state"] for row in record["nodes"]] == ["COMPLETED", "FAILED", "FAILED"]
    assert "bad" in cluster.nodectl("acct").stdout


def test_more_nodes_than_there_are_are_refused_in_one_line(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N4", "-n4", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr


def test_plugins_are_told_the_number_that_the_step_then_has(cluster: Agents) -> None:
    """By the local hooks of the command, and by those of each node."""
    place, said = cluster.home / ".config" / "nodectl", cluster.home / "numbers"
    plugin = cluster.home / "number.py"
    hook = (
        "def slurm_spank_{}(sp, ac, argv):\n    open({!r}, 'a').write(f'{}{{spank_get_item(sp, S_JOB_STEPID)}}\\n')\n"
    )
    plugin.write_text(
        "from nodectl.spank import S_JOB_STEPID, spank_get_item\n\n"
        "plugin_type, plugin_name, plugin_version = 'spank', 'number', (22, 5, 8)\n\n"
        + hook.format("local_user_init", str(said), "")
        + hook.format("task_init", str(said), "")
    )
    place.mkdir(parents=True)
    (place / "plugstack.conf").write_text(f"required {plugin}\n")
    for path in (cluster.home / ".config", place, place / "plugstack.conf", plugin):
        os.chown(path, cluster.user.pw_uid, cluster.user.pw_gid)
    try:
        done = cluster.nodectl("run", "-N3", "-n3", "true")
        assert done.returncode == 0, done.stderr
        assert (len(said.read_text().splitlines()), len(set(said.read_text().splitlines()))) == (4, 1)
    finally:
        (place / "plugstack.conf").unlink()
