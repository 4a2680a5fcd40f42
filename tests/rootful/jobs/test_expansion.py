"""A job that runs is given what another job of its user holds: --dependency=expand, and scontrol's two updates."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.launch.cgroup import tree
from rootful.jobs.machine import CPUS, typed
from rootful.node import NOBODY, OTHER, Node, wait_until
from rootful.queued import QUEUE, emptied, queue_node, queue_running, show, submit, wait_for, wait_for_file

pytestmark = pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")

ASLEEP = "echo began > began.$SLURM_JOB_ID; exec sleep 1000"
DEAF = "trap '' TERM; echo began > began.$SLURM_JOB_ID; while :; do sleep 0.1; done"
STEPS = """echo began > began.$SLURM_JOB_ID
until [ -e go ]; do sleep 0.05; done
{run}
echo done > done
exec sleep 1000"""
MEMORY: dict[str, object] = {"real_memory": 1024}
PLUGIN = """
import json, os, signal
from nodectl.plugins.select import cons_tres
from nodectl.plugins.select.cons_tres import *
plugin_type, plugin_name, plugin_version = "select/recorder", "records three functions", cons_tres.plugin_version
def record(name, *jobs):
    with open(CALLS, "a") as file:
        file.write(json.dumps([name, *(job.job_id for job in jobs)]) + "\\n")
    if os.path.exists(CALLS + ".die." + name):
        os.unlink(CALLS + ".die." + name)
        os.kill(os.getpid(), signal.SIGKILL)
def select_p_job_fini(job_ptr):
    record("fini", job_ptr)
    return cons_tres.select_p_job_fini(job_ptr)
def select_p_job_expand_allow():
    record("allow")
    return not os.path.exists(CALLS + ".never")
def select_p_job_expand(from_job_ptr, to_job_ptr):
    record("expand", from_job_ptr, to_job_ptr)
    return cons_tres.select_p_job_expand(from_job_ptr, to_job_ptr)
def select_p_job_resized(job_ptr, node_ptr):
    record("resized", job_ptr)
    return cons_tres.select_p_job_resized(job_ptr, node_ptr)
"""


@pytest.fixture(scope="module")
def running_node() -> Iterator[Node]:
    with queue_running(**MEMORY, kill_wait=1) as node:
        yield node


@pytest.fixture
def node(running_node: Node) -> Iterator[Node]:
    yield running_node
    emptied(running_node)


def began(node: Node, job: int) -> None:
    wait_for_file(node.scratch / f"began.{job}")


def pair(node: Node, script: str = ASLEEP, second: str = ASLEEP, *, memory: int = 200) -> tuple[int, int]:
    """A job of one CPU, and one of all the others that is to expand it; both run."""
    target = submit(node, script, "-n1", f"--mem={memory}")
    began(node, target)
    source = submit(node, second, f"-n{CPUS - 1}", "--mem=100", f"--dependency=expand:{target}")
    began(node, source)
    return target, source


def update(node: Node, job: int, change: str, **how: Any) -> str:
    """What `nodectl update` says; "" where it did it."""
    done = node.nodectl("update", str(job), change, **{"user": NOBODY, **how})
    assert bool(done.returncode) == bool(done.stderr), done.stderr
    return done.stderr


def merged(node: Node, target: int, source: int) -> None:
    assert update(node, source, "NumNodes=0") == ""
    assert update(node, target, "NumNodes=ALL") == ""


def holds(node: Node, job: int) -> tuple[int, int]:
    """CPUs and MiB."""
    found = show(node, job)
    return found["cpus"], found["memory"]


def test_one_job_has_all_that_two_held(node: Node) -> None:
    target, source = pair(node)
    merged(node, target, source)
    ended = wait_for(node, source, "COMPLETED")
    assert (ended["exit_code"], ended["words"]) == (0, f"job {target} was given what it held")
    assert holds(node, target) == (CPUS, 300)
    waiting = submit(node, "true", "-n1")
    assert show(node, waiting)["state"] == "PENDING"
    spec = json.loads((node.steps / f"{target}.batch.json").read_text())
    assert int(spec["allocation"], 16).bit_count() == CPUS
    assert spec["memory"] == 300
    group = tree.Group(f"{node.base}/job_{target}")
    if group.has("memory.max"):
        assert Path(f"{group.full_path}/memory.max").read_text() == f"{300 << 20}\n"
        assert Path(f"{group.full_path}/step_batch/user/memory.max").read_text() == f"{300 << 20}\n"
    assert node.nodectl("cancel", str(target), user=NOBODY).returncode == 0
    wait_for(node, waiting, "COMPLETED")


def test_further_steps_are_laid_out_on_all_of_it(node: Node) -> None:
    run = typed(node, "run", "--exact", f"-n{CPUS}", "sh", "-c", "echo $SLURM_NTASKS >> steps")
    target, source = pair(node, STEPS.format(run=run))
    merged(node, target, source)
    (node.scratch / "go").touch()
    wait_for_file(node.scratch / "done")
    assert (node.scratch / "steps").read_text() == f"{CPUS}\n" * CPUS


def test_an_allocation_expands_a_run_as_slurms_users_do_it(node: Node) -> None:
    run = node.popen("-n1", "--mem=200", "sh", "-c", ASLEEP, user=NOBODY)
    wait_until(lambda: list(node.scratch.glob("began.*")), "the run has begun")
    target = int(next(node.scratch.glob("began.*")).suffix[1:])
    inner = typed(node, "update")
    script = f"{inner} $SLURM_JOB_ID NumNodes=0 && {inner} {target} NumNodes=ALL && echo done"
    words = ("-n1", "--mem=100", f"--dependency=expand:{target}", "sh", "-c", script)
    done = node.nodectl("alloc", *words, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "revoked: job" in done.stderr
    assert holds(node, target) == (2, 300)
    node.restart(signal.SIGKILL)
    assert holds(node, target) == (2, 300)
    step = node.nodectl("run", f"--jobid={target}", "-n1", "--exact", "echo", "there", user=NOBODY)
    assert step.stdout == "there\n", step.stderr
    node.nodectl("cancel", str(target), user=NOBODY)
    run.communicate()


def test_what_the_givers_processes_use_is_the_others_only_when_they_are_gone(node: Node) -> None:
    target, source = pair(node, second=DEAF)
    assert update(node, source, "NumNodes=0") == ""
    spec = json.loads((node.steps / f"{target}.batch.json").read_text())
    if show(node, source)["state"] == "COMPLETING":
        assert int(spec["allocation"], 16).bit_count() == 1
    node.nodectl("cancel", "-s", "KILL", str(target), user=NOBODY)
    wait_for(node, source, "COMPLETED")
    wait_until(lambda: holds_nothing(node), "all is free")


def holds_nothing(node: Node) -> bool:
    answer: Any = node.call("Nodes")
    return not answer["nodes"][0].get("cpus_alloc")


REFUSALS = [
    ("--dependency=expand:{target}", OTHER, "has no other job"),
    ("--dependency=expand:{target} --array=0-1", NOBODY, "of an array"),
    ("--dependency=expand:{source}", NOBODY, "is to expand another job itself"),
    ("--dependency=expand:99999", NOBODY, "has no other job 99999"),
    ("--dependency=expand:{target},expand:{source}", NOBODY, "expands one other job"),
]


def test_what_nobody_may_expand(node: Node) -> None:
    target, source = pair(node)
    for words, user, reason in REFUSALS:
        options = words.format(target=target, source=source).split()
        done = node.nodectl("submit", *options, "--wrap=true", user=user)
        assert done.returncode, words
        assert reason in done.stderr
    assert "not yours" in update(node, source, "NumNodes=0", user=OTHER)
    assert "expands no job" in update(node, target, "NumNodes=0")
    assert "0 gives" in update(node, source, "NumNodes=1")
    assert holds(node, target) == (1, 200)
    node.nodectl("cancel", str(target), user=NOBODY)
    wait_for(node, target, "CANCELLED")
    assert "expands no job that runs" in update(node, source, "NumNodes=0")


def test_a_job_whose_steps_run_keeps_what_it_holds(node: Node) -> None:
    target, source = pair(node, second=typed(node, "run", "--overlap", "-n1", "sh", "-c", ASLEEP))
    assert f"its step {source}.0 runs" in update(node, source, "NumNodes=0")
    assert holds(node, target) == (1, 200)


@pytest.mark.parametrize("second", [ASLEEP, DEAF], ids=["ends", "deaf"])
def test_a_daemon_that_dies_at_once_leaves_no_cpu_to_two_jobs(second: str) -> None:
    node = queue_node(**MEMORY, kill_wait=1)
    try:
        node.start()
        target, source = pair(node, second=second)
        assert update(node, source, "NumNodes=0") == ""
        node.restart(signal.SIGKILL)
        assert update(node, target, "NumNodes=ALL") == ""
        assert holds(node, target) == (CPUS, 300)
        assert wait_for(node, source, "COMPLETED")["exit_code"] == 0
        waiting = submit(node, "true", "-n1")
        assert show(node, waiting)["state"] == "PENDING"
        spec = json.loads((node.steps / f"{target}.batch.json").read_text())
        assert (int(spec["allocation"], 16).bit_count(), spec["memory"]) == (CPUS, 300)
        emptied(node)
    finally:
        node.close()


def test_a_giver_holds_what_it_uses_when_the_other_has_ended_and_the_daemon_died() -> None:
    node = queue_node(**MEMORY, kill_wait=600)
    try:
        node.start()
        target, source = pair(node, second=DEAF)
        assert update(node, source, "NumNodes=0") == ""
        node.restart(signal.SIGKILL)
        assert (show(node, source)["state"], show(node, source)["resources"]) == ("COMPLETING", {})
        assert holds(node, target) == (CPUS, 300)
        node.nodectl("cancel", str(target), user=NOBODY)
        wait_for(node, target, "CANCELLED")
        for _ in range(2):
            whole = submit(node, "true", f"-n{CPUS}")
            one = submit(node, "true", "-n1")
            assert show(node, whole)["state"] == "PENDING"
            node.nodectl("cancel", str(whole), user=NOBODY)
            wait_for(node, one, "COMPLETED")
            assert show(node, source)["state"] == "COMPLETING"
            node.restart(signal.SIGKILL)
        node.nodectl("cancel", "-s", "KILL", "--batch", str(source), user=NOBODY)
        wait_for(node, source, "COMPLETED")
        assert holds_nothing(node)
        emptied(node)
    finally:
        node.close()


def recorded() -> tuple[Node, Path]:
    """A node with a site's plugin, and the file of its calls."""
    node = queue_node(**{**QUEUE, **MEMORY, "select_type": "select/recorder"}, kill_wait=1)
    calls = node.dir / "calls"
    path = node.plugins / "select" / "recorder.py"
    path.parent.mkdir()
    path.write_text(PLUGIN.replace("CALLS", repr(str(calls))))
    return node, calls


@pytest.mark.parametrize("when", ["expand", "fini"])
def test_it_has_happened_or_not_wherever_the_daemon_dies(when: str) -> None:
    node, calls = recorded()
    try:
        node.start()
        target, source = pair(node)
        Path(f"{calls}.die.{when}").touch()
        assert update(node, source, "NumNodes=0")
        assert node.daemon is not None
        node.daemon.wait(45)
        node.start()
        if when == "expand":  # before it was on the disk
            assert (show(node, source)["state"], holds(node, source)) == ("RUNNING", (CPUS - 1, 100))
            assert (show(node, target)["state"], holds(node, target)) == ("RUNNING", (1, 200))
            assert update(node, source, "NumNodes=0") == ""
        assert update(node, target, "NumNodes=ALL") == ""
        assert holds(node, target) == (CPUS, 300)
        assert wait_for(node, source, "COMPLETED")["exit_code"] == 0
        assert "plugin select/recorder" not in node.logged()
        emptied(node)
    finally:
        node.close()


def test_a_sites_plugin_is_asked_and_told() -> None:
    node, calls = recorded()
    try:
        node.start()
        target, source = pair(node)
        assert json.loads(calls.read_text().splitlines()[0]) == ["allow"]
        merged(node, target, source)
        told = [json.loads(line) for line in calls.read_text().splitlines()]
        assert [call for call in told if call != ["allow"]] == [["expand", source, target], ["fini", source]]
        assert holds(node, target) == (CPUS, 300)
        Path(f"{calls}.never").touch()
        done = node.nodectl("submit", f"--dependency=expand:{target}", "--wrap=true", user=NOBODY)
        assert "plugin select/recorder (records three functions) cannot expand jobs" in done.stderr
        assert "plugin select/recorder" not in node.logged()
        emptied(node)
    finally:
        node.close()
