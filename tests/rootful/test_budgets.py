"""What one user may have of a node: more is refused with the key that says so, and others notice nothing."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl import _kernel
from nodectl.stepd.task import CAP_SYS_RESOURCE
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_until
from rootful.raw import exchange, launch

ON = "echo on; exec sleep 1000"


@pytest.fixture
def node() -> Iterator[Node]:
    with running(max_step_bytes_per_user=1 << 20, max_tasks_per_user=4) as started:
        yield started


@contextlib.contextmanager
def held(node: Node, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A step of nobody's that runs."""
    with node.popen(*words, user=NOBODY) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "on\n"
        try:
            yield client
        finally:
            client.terminate()


def large(size: int) -> list[str]:
    """A program with arguments of so many bytes."""
    return ["sh", "-c", ON, "sh", *["x" * 100_000] * (size // 100_000)]


def test_files_of_one_users_steps_have_a_bound_that_a_restart_does_not_lift(node: Node) -> None:
    with held(node, *large(600_000)):
        for restart in (False, True):
            if restart:
                node.restart(signal.SIGKILL)
            refused = node.run(*large(600_000), user=NOBODY)
            assert refused.returncode == 1
            assert "max_step_bytes_per_user = 1048576" in refused.stderr
            assert [path.name for path in node.steps.glob("*.json")] == ["1.0.json"]
        assert node.run("true", user=NOBODY).returncode == 0
        assert node.run("true", *["x" * 100_000] * 6, user=OTHER).returncode == 0
        assert node.run("true", *["x" * 100_000] * 12).returncode == 0  # root's
    wait_until(lambda: not list(node.steps.glob("*.json")), "the step is in the history")
    assert node.run("true", *["x" * 100_000] * 6, user=NOBODY).returncode == 0


def test_tasks_of_one_users_steps_have_a_bound_together(node: Node) -> None:
    with held(node, "-n3", "sh", "-c", "[ $SLURM_PROCID = 0 ] && echo on; exec sleep 1000"):
        refused = node.run("-n2", "true", user=NOBODY)
        assert refused.returncode == 1
        assert "3 tasks of yours are running: max_tasks_per_user = 4" in refused.stderr
        assert node.run("-n1", "true", user=NOBODY).returncode == 0
        assert node.run("-n2", "true", user=OTHER).returncode == 0
        assert node.run("-n5", "true").returncode == 0  # root's
        assert "max_tasks_per_node" in node.run("-n600", "true", user=NOBODY).stderr
    wait_until(lambda: not list(node.steps.glob("*.json")), "the step is in the history")
    assert node.run("-n4", "true", user=NOBODY).returncode == 0


def test_request_has_a_bound_beside_program_and_environment(node: Node) -> None:
    option = ["renice", "renice", "x" * 60_000]
    reply, closed = exchange(node, launch(options=[option] * 5))
    assert reply is not None
    assert not closed
    assert reply["error"] == "org.nodectl.InvalidRequest"
    assert "beside program and environment are more than 262144" in str(reply["parameters"])
    assert list(node.steps.iterdir()) == []


@pytest.mark.skipif(
    not _kernel.capabilities()[0] & CAP_SYS_RESOURCE, reason="root lacks CAP_SYS_RESOURCE here: nobody is spared"
)
def test_oom_killer_is_not_kept_from_a_large_step_runner(node: Node) -> None:
    node.configure(max_step_bytes_per_user=64 << 20)
    node.restart()

    def adjustment() -> int:
        (pid,) = (pid for pid, name in node.processes() if name.startswith("stepd"))
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii"))

    assert node.daemon is not None
    own = int(Path(f"/proc/{node.daemon.pid}/oom_score_adj").read_text(encoding="ascii"))
    with held(node, "sh", "-c", ON) as small:
        assert adjustment() == -999
        small.terminate()
        small.communicate(timeout=PATIENCE)
    node.assert_clean()
    with held(node, *large(1_200_000)):
        assert adjustment() == own
