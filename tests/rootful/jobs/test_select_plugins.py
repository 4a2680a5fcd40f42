"""What a site's select plugin says of jobs and steps takes effect in a service, and what it refuses is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rootful.node import NOBODY, Node, wait_for_answer, wait_until
from rootful.queued import emptied, queue_node, show, submit, wait_for

PLUGIN = """
import json, os
from nodectl.plugin_api import set_errno
from nodectl.plugins.select import linear as real

SCRATCH = {scratch!r}
globals().update({{name: value for name, value in vars(real).items() if name.startswith("select_p_")}})

def told(name):
    try:
        with open(f"{{SCRATCH}}/{{name}}") as file:
            return file.read()
    except FileNotFoundError:
        return ""

def fails(name):
    if told(name):
        set_errno(28)
        return -1
    return None

def select_p_job_begin(job_ptr):
    for field, value in json.loads(told("write") or "{{}}").items():
        setattr(job_ptr, field, value)
    return fails("fail.begin") or real.select_p_job_begin(job_ptr)

def select_p_job_suspend(job_ptr, indf_susp):
    return fails("fail.suspend") or real.select_p_job_suspend(job_ptr, indf_susp)

def select_p_step_pick_nodes(job_ptr, step_jobinfo, node_count):
    step_jobinfo.network = f"step of {{job_ptr.job_id}}"

def select_p_step_finish(step_ptr, killing_step):
    with open(f"{{SCRATCH}}/finished", "a") as file:
        print(step_ptr.num_tasks, step_ptr.select_jobinfo.network, killing_step, file=file)
    return 0
"""
WAITS = "touch began; until [ -e end ]; do sleep 0.02; done"


@pytest.fixture(scope="module")
def of_module() -> Iterator[Node]:
    node = queue_node(select_type="select/actor", suspend_grace_time=0)
    path = node.plugin("actor", PLUGIN.format(scratch=str(node.scratch)), "select")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("plugin_version = (22, 5, 8)\n", ""), encoding="utf-8")  # which it may leave out
    try:
        yield node.start()
    finally:
        node.close()


@pytest.fixture
def node(of_module: Node) -> Iterator[Node]:
    yield of_module
    emptied(of_module)


def runs(node: Node, *options: str, script: str = WAITS) -> int:
    job = submit(node, script, "-t10", *options)
    wait_until((node.scratch / "began").exists, "the script has begun")
    return job


def end(node: Node, job: int) -> None:
    (node.scratch / "end").touch()
    wait_for(node, job, "COMPLETED")


def test_job_goes_on_that_the_select_plugin_does_not_suspend(node: Node) -> None:
    """Its processes were frozen, the queue called it RUNNING, and it could not be resumed."""
    job = runs(node)
    (node.scratch / "fail.suspend").write_text("yes")
    done = node.nodectl("suspend", str(job))
    assert done.returncode == 1
    why = f"step {job}.batch goes on: plugin select/actor: select_p_job_suspend: No space left on device"
    assert done.stderr.rstrip().endswith(why), done.stderr
    assert show(node, job)["state"] == "RUNNING"
    (node.scratch / "fail.suspend").unlink()
    for word, state in (("suspend", "SUSPENDED"), ("resume", "RUNNING")):
        assert node.nodectl(word, str(job)).returncode == 0
        assert show(node, job)["state"] == state
    (node.scratch / "fail.suspend").write_text("yes")
    assert node.nodectl("suspend", str(job)).returncode == 1
    end(node, job)


def test_network_of_a_job_reaches_the_select_plugin(node: Node) -> None:
    job = runs(node, "--network=sn_all")
    assert show(node, job)["select"]["network"] == "sn_all"
    end(node, job)


@pytest.mark.parametrize(("words", "variables"), [(["--network=ib"], {}), ([], {"SLURM_NETWORK": "ib"})])
def test_network_of_a_run_reaches_the_select_plugin(node: Node, words: list[str], variables: dict[str, str]) -> None:
    client = node.popen(*words, "sh", "-c", f"echo ready; {WAITS}", user=NOBODY, env=variables)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    wait_for_answer(client)
    found = show(node, node.last_job())
    (node.scratch / "end").touch()
    client.communicate()
    assert client.returncode == 0
    assert found["select"]["network"] == "ib"


def test_what_job_begin_decides_of_a_job_holds_for_the_job(node: Node) -> None:
    """It was undone without a word."""
    wanted: dict[str, Any] = {"name": "renamed", "account": "physics", "time_limit": 120}
    (node.scratch / "write").write_text(json.dumps({**wanted, "user_name": "root"}))
    job = runs(node, "-Jsaid", script=f"echo $SLURM_JOB_NAME >began; {WAITS}")
    found = show(node, job)
    assert {name: found[name] for name in wanted} == wanted
    assert found["user"] == "nobody"
    assert (node.scratch / "began").read_text() == "renamed\n"
    assert f"select_p_job_begin: changed user_name of job {job}, which is as it was\n" in node.logged()
    end(node, job)
    assert node.run("sh", "-c", "echo $SLURM_JOB_NAME", user=NOBODY).stdout == "renamed\n"


def test_errno_of_job_begin_is_why_a_job_waits(node: Node) -> None:
    (node.scratch / "fail.begin").write_text("yes")
    job = submit(node, "true")
    words = "plugin select/actor: select_p_job_begin: No space left on device"
    wait_until(lambda: words in str(show(node, job).get("words")), "the job waits for that")


def test_what_the_select_plugin_keeps_of_a_step_is_there_after_a_restart(node: Node) -> None:
    job = runs(node, "-n2")
    node.restart()
    end(node, job)
    finished = node.scratch / "finished"
    wait_until(lambda: finished.exists() and finished.read_text(), "the plugin was told of the step's end")
    assert finished.read_text().splitlines()[-1] == f"1 step of {job} False"
