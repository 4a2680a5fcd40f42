"""Batch jobs whose processes are killed while they begin: what never ran runs later, and nothing runs twice."""

from __future__ import annotations

import os
import signal

from rootful.node import wait_until
from rootful.queued import ENDED, queue_node, submit, wait_for, wait_for_file

HOLD = """
import os, time
from nodectl.spank import *
def slurm_spank_init_post_opt(spank, ac, argv):
    if spank_remote(spank) == 1 and os.path.exists(FLAG):
        open(FLAG + ".there", "w").write(f"{os.getpid()}\\n")
        while os.path.exists(FLAG):
            time.sleep(0.05)
    return 0
"""


def test_job_whose_step_runner_dies_before_its_script_began_runs_later_and_once() -> None:
    node = queue_node()
    flag = node.scratch / "hold"
    there = node.scratch / "hold.there"
    flag.touch()
    try:
        node.plugin("hold", HOLD.replace("FLAG", repr(str(flag))))
        node.plugstack("required hold.py\n")
        node.start()
        job = submit(node, "echo $SLURM_RESTART_COUNT >> ran")
        wait_until(lambda: there.exists() and there.read_text().endswith("\n"), "the step runner is in the plugin")
        os.kill(int(there.read_text()), signal.SIGKILL)
        flag.unlink()
        record = wait_for(node, job, "COMPLETED")
        assert record["restarts"] == 1
        assert (node.scratch / "ran").read_text() == "1\n"
        node.assert_clean()
        assert "Traceback" not in node.logged()
    finally:
        node.close()


def test_job_whose_step_runner_dies_while_its_script_runs_is_not_begun_again() -> None:
    node = queue_node()
    try:
        node.start()
        job = submit(node, "echo began >> ran; exec sleep 1000")
        wait_for_file(node.scratch / "ran")
        (runner,) = [pid for pid, name in node.processes() if name.startswith("stepd")]
        os.kill(runner, signal.SIGKILL)
        assert wait_for(node, job, *ENDED)["state"] == "NODE_FAIL"
        assert (node.scratch / "ran").read_text() == "began\n"
        node.assert_clean()
    finally:
        node.close()
