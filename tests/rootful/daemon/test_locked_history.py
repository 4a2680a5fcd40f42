"""A process that locks the history's file: nothing stands still, nothing is lost, and users are told why."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator

import pytest

from rootful.node import NOBODY, PATIENCE, Node, running, wait_until


@pytest.fixture
def node() -> Iterator[Node]:
    with running() as started:
        yield started
        assert "Traceback" not in started.logged()


@contextlib.contextmanager
def locked(node: Node) -> Iterator[None]:
    other = sqlite3.connect(f"{node.values['state_dir']}/history.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


def test_new_jobs_are_refused_in_words_while_all_else_goes_on(node: Node) -> None:
    assert node.run("true", user=NOBODY).returncode == 0
    client = node.popen("sh", "-c", "echo on; read line; exit 5", user=NOBODY, stdin=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    with locked(node):
        while (refused := node.run("true", user=NOBODY)).returncode == 0:
            pass  # with the numbers that were drawn before
        assert refused.returncode == 1
        assert "history.db is locked by another process, which `fuser -v " in refused.stderr
        assert "is locked by another process" in node.nodectl("submit", "--wrap=true", user=NOBODY).stderr
        assert "2.0" in node.nodectl("ps", user=NOBODY).stdout
        client.communicate("end\n", timeout=PATIENCE)
        assert client.returncode == 5
        assert "FAILED" in node.nodectl("show", "2.0", user=NOBODY).stdout
    wait_until(lambda: "is not locked any more" in node.logged(), "the daemon writes again")
    wait_until(lambda: not list(node.steps.glob("2.0.*")), "the step is in the history")
    assert node.record(2)["exit_status"] == 5
    assert node.run("true", user=NOBODY).returncode == 0
    assert node.nodectl("submit", "--wrap=true", user=NOBODY).returncode == 0
    node.assert_clean()


def test_a_daemon_does_not_start_on_a_damaged_history_and_says_what_to_do(node: Node) -> None:
    node.stop()
    path = node.dir / "state/history.db"
    kept = path.read_bytes()
    path.write_bytes(b"no database" + kept[11:])
    with pytest.raises(AssertionError, match=f"{path} is damaged: file is not a database; stop the service"):
        node.start()
    node.daemon = None
    path.write_bytes(kept)
    node.start()
