"""A step runner never waits for a path of its user's: SIGKILL and the time limit are answered whatever lies there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.fuse import unanswered_file
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until
from rootful.queued import submit, wait_for

pytestmark = [
    pytest.mark.rootful,
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no file systems in user space here"),
]


@pytest.fixture
def node() -> Iterator[Node]:
    with running(kill_wait=1, unkillable_step_timeout=2) as made:
        yield made


@pytest.fixture
def file(node: Node) -> Iterator[Path]:
    """Its user's file system never answers whoever closes it."""
    path = node.scratch / "file"
    with unanswered_file(path):
        yield path
    node.assert_clean()


def helpers(node: Node) -> list[str]:
    """Processes of step runners that have become their user."""
    found = []
    for pid, name in node.processes():
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        if name.startswith("stepd") and f"Uid:\t{NOBODY.pw_uid}\t" in status:
            found.append(name)
    return found


def test_a_time_limit_ends_a_step_whose_shared_output_cannot_be_emptied(node: Node, file: Path) -> None:
    client = node.popen("-n2", "--time=0:01", f"--output={file}", "true", user=NOBODY)
    client.communicate(timeout=PATIENCE)
    record = node.record(node.last_job())
    assert (record["state"], record["tasks"]) == ("TIMEOUT", [])


def test_sigkill_ends_a_step_whose_shared_output_cannot_be_emptied(node: Node, file: Path) -> None:
    client = node.popen("-n2", f"--output={file}", "true", user=NOBODY)
    wait_until(lambda: helpers(node), "a process of the user's opens the file")
    job = node.last_job()
    assert node.nodectl("signal", "-s", "KILL", str(job)).returncode == 0
    client.communicate(timeout=PATIENCE)
    assert node.record(job)["state"] == "CANCELLED"


def test_a_job_ends_whose_messages_cannot_be_written(node: Node, file: Path) -> None:
    ready = node.scratch / "ready"
    script = f"ln -sf {file} said\ntouch {ready}\nexec sleep 1000"
    job = submit(node, script, "--error=said", "--time=0:10")
    wait_until(ready.exists, "the script has begun")
    assert wait_for(node, job, "TIMEOUT", "FAILED", "CANCELLED", "COMPLETED")["state"] == "TIMEOUT"
