"""A node without any feature launches, queues and remembers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from core_alone import copied
from rootful.node import BOOT, NOBODY, Node


class CoreNode(Node):
    """A node whose processes are those of an installation without features."""

    def __init__(self) -> None:
        super().__init__()
        self._path = copied(self.dir / "core")

    def command(self, *words: str) -> list[str]:
        boot = BOOT.format(path=self._path)
        return [sys.executable, "-IS", "-c", boot, "--config", str(self.config_path), *words]


@pytest.fixture
def alone() -> Iterator[CoreNode]:
    """A configuration that no daemon serves."""
    node = CoreNode()
    try:
        yield node
    finally:
        node.close()


@pytest.fixture
def core(alone: CoreNode) -> Iterator[CoreNode]:
    alone.start()
    yield alone
    alone.assert_clean()
    assert "Traceback" not in alone.logged()


def test_steps_and_jobs_run_without_features(core: CoreNode) -> None:
    done = core.run("-n2", "-l", "echo", "there", user=NOBODY)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["0: there", "1: there"]), done.stderr
    held = core.nodectl("submit", "--hold", "--job-name=waits", "--wrap=true", user=NOBODY)
    assert held.returncode == 0, held.stderr
    assert "waits" in core.nodectl("queue").stdout
    assert core.nodectl("cancel", "--name=waits").returncode == 0
    done = core.nodectl("submit", "--wait", "--job-name=ends", "--wrap=exit 3", user=NOBODY)
    assert done.returncode == 3, done.stderr
    assert "ends" in core.nodectl("acct").stdout


def test_a_step_of_a_missing_feature_is_refused_with_what_is_not_installed(core: CoreNode) -> None:
    """Its client is that of another installation."""
    done = subprocess.run(
        Node.command(core, "bulk", "true", ":::", "1"),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=core.environment(),
    )  # fmt: skip
    assert "nodectl's part 'bulk' is not installed here" in done.stderr
    assert done.returncode == 255


def test_mpi_plugins_go_with_their_servers(core: CoreNode) -> None:
    assert 'mpi_plugin = ["mpi/none"]' in core.nodectl("config").stdout
    done = core.run("--mpi=pmi2", "true")
    assert (done.returncode, "there is no such MPI plugin" in done.stderr) == (1, True), done.stderr


def test_doctor_checks_the_same_without_features(core: CoreNode) -> None:
    found = []
    for words in (Node.command(core, "doctor", "--json"), core.command("doctor", "--json")):
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=core.environment())
        assert done.stderr == ""
        found.append({check["what"] for check in json.loads(done.stdout)["checks"]})
    assert found[0] == found[1]


def test_a_private_node_runs_a_step_without_features(alone: CoreNode) -> None:
    done = alone.run("echo", "there")
    assert (done.returncode, done.stdout) == (0, "there\n"), done.stderr
