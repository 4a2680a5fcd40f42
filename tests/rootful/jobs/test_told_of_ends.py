"""The select plugin hears of the end of a job and of a step before its tasks are killed, whoever ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_until
from rootful.queued import QUEUE

pytestmark = pytest.mark.rootful

PLUGIN = """
import os
from nodectl.plugins.select import cons_tres
from nodectl.plugins.select.cons_tres import *

plugin_type = "select/told"
plugin_name = "told"

def _tell(words):
    with open({scratch!r} + "/pid") as file:
        lives = os.path.exists("/proc/" + file.read().strip())
    with open({scratch!r} + "/told", "a") as file:
        file.write(words + (" alive\\n" if lives else " dead\\n"))

def select_p_job_fini(job_ptr):
    _tell("job_fini")
    return cons_tres.select_p_job_fini(job_ptr)

def select_p_step_finish(step_ptr, killing_step):
    _tell(f"step_finish {{killing_step}}")
    return 0
"""
# It outlives SIGTERM, so that it lives until kill_wait is over.
PROGRAM = "trap '' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.1; done"


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node(**{**QUEUE, "select_type": "select/told", "kill_wait": 3})
    path = made.plugins / "select/told.py"
    path.parent.mkdir()
    path.write_text(PLUGIN.format(scratch=str(made.scratch)), encoding="utf-8")
    try:
        yield made.start()
        made.assert_clean()
    finally:
        made.close()


@pytest.mark.parametrize("how", ["time limit", "cancel of the step", "cancel of the job", "SIGKILL"])
def test_both_are_told_before_the_tasks_are_killed(node: Node, how: str) -> None:
    words = ["--time=0:10"] if how == "time limit" else []
    client = node.popen(*words, "sh", "-c", PROGRAM, user=NOBODY)
    wait_until((node.scratch / "pid").exists, "the task runs")
    job = node.last_job()
    command = {
        "cancel of the step": ("cancel", f"{job}.0"),
        "cancel of the job": ("cancel", str(job)),
        "SIGKILL": ("signal", "-s", "KILL", f"{job}.0"),
    }.get(how)
    if command is not None:
        assert node.nodectl(*command, user=NOBODY).returncode == 0
    client.communicate(timeout=PATIENCE)
    told = node.scratch / "told"
    wait_until(lambda: "step_finish False" in told.read_text(encoding="utf-8"), "the end is told")
    lines = told.read_text(encoding="utf-8").splitlines()
    assert sorted(line.rpartition(" ")[0] for line in lines) == ["job_fini", "step_finish False", "step_finish True"]
    assert {"job_fini alive", "step_finish True alive", "step_finish False dead"} == set(lines)
