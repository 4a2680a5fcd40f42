"""A node, and Slurm's commands for it in a directory of their own."""

from __future__ import annotations

import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.jobs.machine import TURNS, cancel_all
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until


class Cluster:
    """Where scripts that were written for a cluster run: the commands stand first in PATH."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.bin = node.dir / "bin"
        done = node.nodectl("slurm-commands", str(self.bin))
        assert done.returncode == 0, done.stderr

    def sh(
        self, script: str, user: pwd.struct_passwd = NOBODY, timeout: float = 2 * PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Runs a line of shell as a user types it."""
        return subprocess.run(
            ["/bin/bash", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={"PATH": f"{self.bin}:/usr/bin:/bin", "LANG": "C.UTF-8", "USER": user.pw_name},
            cwd=str(self.node.scratch),
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
        )

    def ok(self, script: str, user: pwd.struct_passwd = NOBODY) -> str:
        """The same, of what succeeds: its output."""
        done = self.sh(script, user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def file(self, name: str, text: str) -> Path:
        """A script that anybody may run."""
        path = self.node.scratch / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def until_over(self) -> None:
        """No job is left in the queue."""
        wait_until(lambda: self.ok("squeue -h") == "", "the queue is empty")

    def text(self, name: str) -> str:
        """What a job wrote."""
        return (self.node.scratch / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """One for the tests of a module."""
    with running(**TURNS) as node:
        yield Cluster(node)


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The module's, whose jobs end with the test, and of which nothing may be left then."""
    yield shared_cluster
    cancel_all(shared_cluster.node)
    shared_cluster.node.assert_clean()
    assert "Traceback" not in shared_cluster.node.logged()
    for path in shared_cluster.node.scratch.iterdir():
        path.unlink()
