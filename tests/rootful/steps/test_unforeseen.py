"""A step runner that meets an error that nobody foresaw says which, and no such error costs tasks that run."""

from __future__ import annotations

import os
import resource
import signal
from typing import Any

import pytest

from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

pytestmark = pytest.mark.rootful

# In the step runner, a function of it fails as if the kernel had refused something.
BREAKS = """
from nodectl.spank import spank_remote

def slurm_spank_init(sp, ac, argv):
    if not spank_remote(sp):
        return 0
    from nodectl.launch.stepd import main

    def broken(*_):
        raise OSError(12, "Cannot allocate memory", "/some/file")

    setattr(main, argv[0], broken)
"""


@pytest.mark.parametrize(
    ("function", "state"),
    [
        ("wait_for_streams", "FAILED"),
        ("open_gate", "FAILED"),  # the tasks wait at it
        ("remove_groups", "NODE_FAIL"),  # what cannot be ended in order ends all the same
    ],
)
def test_the_user_is_told_the_call_the_object_and_the_errno(function: str, state: str) -> None:
    with running() as node:
        node.plugstack(f"required {node.plugin('breaks', BREAKS)} {function}\n")
        done = node.run("-n2", "true", user=NOBODY)
        assert done.returncode == 1
        (line,) = [line for line in done.stderr.splitlines() if "unforeseen" in line]
        assert "OSError: [Errno 12] Cannot allocate memory: '/some/file'" in line
        assert line.endswith(" broken)")
        record = node.record(node.last_job())
        assert record["state"] == state
        if state == "FAILED":
            assert "[Errno 12]" in str(record["reason"])
        assert " broken)" in node.logged()
        node.assert_clean()


def stepd_of(node: Node) -> int:
    steps: Any = node.call("List")["steps"]
    return int(steps[0]["pid"])


def test_a_step_goes_on_while_the_kernel_refuses_poll() -> None:
    """It was the death of the step runner, and with it of all tasks. Here it has more descriptors than it may poll."""
    with running() as node:
        go = node.scratch / "go"
        client = node.popen("sh", "-c", f"while ! [ -e {go} ]; do sleep 0.05; done; exit 3", user=NOBODY)
        wait_until(lambda: any(name == "sh" for _, name in node.processes()), "the task runs")
        stepd = stepd_of(node)
        before = resource.prlimit(stepd, resource.RLIMIT_NOFILE)
        resource.prlimit(stepd, resource.RLIMIT_NOFILE, (1, before[1]))
        os.kill(stepd, signal.SIGCHLD)  # ends the poll(2) that it is in
        wait_until(lambda: "trying again" in node.logged(), "poll(2) is refused")
        resource.prlimit(stepd, resource.RLIMIT_NOFILE, before)
        go.touch()
        assert client.wait(PATIENCE) == 3
        client.communicate()
        node.assert_clean()
