"""Full disks: what a user fills costs others no result, and nothing begins that could not be recorded."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_for_answer, wait_until

RELEASED = 'echo on; until [ -e "$0" ]; do sleep 0.02; done; exit 5'


@contextlib.contextmanager
def small(directory: Path) -> Iterator[None]:
    """A file system of its own, of one megabyte, for a node that does not run yet."""
    directory.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        # The forkserver has its files open for a moment longer, what a failing test left for ever.
        subprocess.run(["umount", "--lazy", directory], check=True)


@pytest.fixture
def node() -> Iterator[Node]:
    """A node whose runtime directory is small."""
    node = Node()
    try:
        with small(node.steps.parent):
            try:
                yield node.start()
                node.assert_clean()
                assert "Traceback" not in node.logged()
            finally:
                node.stop()
    finally:
        node.close()


def fill(directory: Path) -> Path:
    filler = directory / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return filler


def begun(node: Node) -> tuple[subprocess.Popen[str], Path]:
    """A step of a user's that runs until a file is there and then exits 5."""
    go = node.scratch / "go"
    client = node.popen("sh", "-c", RELEASED, str(go), user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    wait_for_answer(client)
    return client, go


def told(node: Node) -> tuple[object, ...]:
    record = node.record(1)
    return record["state"], record["exit_status"], record["reason"]


TRUE = ("FAILED", 5, "task 0 ended with exit code 5")


def test_result_survives_a_runtime_directory_that_fills_while_the_step_runs(node: Node) -> None:
    client, go = begun(node)
    filler = fill(node.steps.parent)
    go.touch()
    _, said = client.communicate(timeout=PATIENCE)
    assert (client.returncode, "died" in said) == (5, False), said
    assert told(node) == TRUE
    filler.unlink()


def test_nothing_begins_in_a_full_runtime_directory_and_the_user_learns_why(node: Node) -> None:
    filler = fill(node.steps.parent)
    ran = node.scratch / "ran"
    refused = node.run("touch", str(ran), user=NOBODY)
    assert refused.returncode == 1
    assert f"no room for its files in {node.steps}: No space left on device" in refused.stderr
    assert not ran.exists()
    assert [path.name for path in node.steps.iterdir()] == []
    filler.unlink()
    assert node.run("touch", str(ran), user=NOBODY).returncode == 0


def test_result_that_cannot_be_saved_comes_over_the_connections(node: Node) -> None:
    """Whoever took the room away: the client and the daemon are told all the same."""
    client, go = begun(node)
    (node.steps / "1.0.record.part").unlink()
    filler = fill(node.steps.parent)
    go.touch()
    _, said = client.communicate(timeout=PATIENCE)
    assert client.returncode == 5, said
    assert "save its record: No space left on device" in said
    wait_until(lambda: not list(node.steps.glob("1.0.*")), "it is in the history")
    assert told(node) == TRUE
    filler.unlink()


def test_result_that_cannot_be_saved_is_told_to_a_later_daemon_too(node: Node) -> None:
    client, go = begun(node)
    (node.steps / "1.0.record.part").unlink()
    node.stop(signal.SIGKILL)
    node.start()
    filler = fill(node.steps.parent)
    go.touch()
    assert client.wait(PATIENCE) == 5
    wait_until(lambda: not list(node.steps.glob("1.0.*")), "it is in the history")
    assert told(node) == TRUE
    filler.unlink()
    client.communicate()


def test_both_disks_full_lose_no_result(node: Node) -> None:
    node.stop()
    with small(node.dir / "state"):
        try:
            node.start()
            client, go = begun(node)
            fillers = [fill(node.steps.parent), fill(node.dir / "state")]
            go.touch()
            assert client.wait(PATIENCE) == 5
            wait_until(lambda: "into the history" in node.logged(), "it cannot be written")
            assert told(node) == TRUE
            refused = [node.run("true", user=NOBODY) for _ in range(20)]  # the first with numbers drawn before
            assert {one.returncode for one in refused} == {1}
            assert "no job id can be drawn from the history: " in refused[-1].stderr
            assert refused[-1].stderr.endswith("history.db: database or disk is full\n")  # and no advice about jobs
            for number in (signal.SIGKILL, signal.SIGTERM):
                node.restart(number)
                assert told(node) == TRUE
            fillers.pop().unlink()
            node.restart(signal.SIGKILL)
            assert told(node) == TRUE
            fillers.pop().unlink()
            wait_until(lambda: not list(node.steps.iterdir()), "it is in the history")
            assert told(node) == TRUE
            assert node.run("true", user=NOBODY).returncode == 0
            client.communicate()
        finally:
            node.stop()
    node.start()
