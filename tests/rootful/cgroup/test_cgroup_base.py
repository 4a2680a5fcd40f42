"""The cgroup below which a daemon's steps live: made again where somebody removes it, and shared by no two daemons."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import pytest

from nodectl.launch.cgroup import tree
from rootful.node import NOBODY, Node, running, wait_until
from rootful.stage import staged


@pytest.mark.parametrize("jobs", [False, True])
def test_cgroup_that_was_removed_from_outside_is_made_again(*, jobs: bool) -> None:
    with staged(jobs=jobs) as stage:
        for _ in range(2):
            done = stage.node.run("cat", "/proc/self/cgroup", user=NOBODY)
            assert (done.returncode, done.stderr) == (0, "")
            assert f"/{stage.node.cgroup_name}/" in done.stdout
            stage.node.assert_clean()
            wait_until(lambda: not os.path.exists(stage.node.base) or _removed(stage.node), "the cgroup is removed")


def _removed(node: Node) -> bool:
    try:
        for name in (tree.RUNNERS, ""):  # the spare waits in the first one, for ten seconds
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(f"{node.base}/{name}")
    except OSError:
        return False  # a job's is going yet
    return True


def test_second_daemon_in_a_cgroup_is_refused_and_the_first_serves_on() -> None:
    with running(warm_runners=0) as first:  # which would be in it
        other = Node(cgroup_name=first.cgroup_name)
        try:
            done = subprocess.run(
                other.command("daemon"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                env=other.environment(), timeout=60,
            )  # fmt: skip
        finally:
            other.close()
        assert done.returncode == 1
        (line,) = [line for line in done.stderr.splitlines() if first.cgroup_name in line]
        assert "another daemon has it" in line
        assert first.run("true", user=NOBODY).returncode == 0
        first.assert_clean()
        os.rmdir(first.base)  # made again, it is no less the first one's
        assert first.run("true", user=NOBODY).returncode == 0
        first.restart()
        assert first.run("true", user=NOBODY).returncode == 0


def test_a_user_who_locks_the_directory_keeps_no_daemon_from_starting() -> None:
    with running() as node:
        node.stop(signal.SIGKILL)
        words = ["flock", "-Fx", node.base, "sh", "-c", "echo locked; exec sleep 300"]
        stranger = subprocess.Popen(
            words, stdout=subprocess.PIPE, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[], text=True
        )
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == "locked\n"
            node.start()
            assert node.run("true", user=NOBODY).returncode == 0
        finally:
            stranger.kill()
            stranger.communicate()
