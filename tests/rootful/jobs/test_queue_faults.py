"""Faults around the queue: full disks at each write, select plugins that fail. Nothing is lost, the daemon lives."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, Node, wait_until
from rootful.queued import ENDED, all_cpus, queue, queue_node, state, submit, wait_for

LINEAR = """
from nodectl.plugins.select import linear as real

globals().update({name: value for name, value in vars(real).items() if name.startswith("select_p_")})
"""


@pytest.fixture
def small() -> Iterator[Node]:
    """A node whose state directory is a file system of two megabytes."""
    node = queue_node()
    directory = Path(str(node.values["state_dir"]))
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "tmpfs", directory], check=True)
    try:
        yield node.start()
        assert "Traceback" not in node.logged()
    finally:
        node.stop()
        subprocess.run(["umount", "--lazy", directory], check=True)
        node.close()


def fill(node: Node) -> Path:
    filler = Path(str(node.values["state_dir"])) / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        while file.write(b"x"):
            pass
    return filler


def fifo(node: Node) -> Path:
    path = node.scratch / "hold"
    os.mkfifo(path)
    path.chmod(0o666)
    return path


def test_job_that_the_disk_has_no_room_for_is_refused_and_never_was(small: Node) -> None:
    filler = fill(small)
    refusals = []
    for number in range(8):  # the log of the file may have a little room left
        done = small.nodectl(
            "submit", "--parsable", "--hold", user=NOBODY, stdin=f"#!/bin/sh\n{'#' * 90_000}{number}\n"
        )
        if done.returncode:
            refusals.append(done.stderr)
    assert refusals
    assert all(len(one.splitlines()) == 1 and "full" in one for one in refusals)
    kept = len(queue(small))
    assert kept == 8 - len(refusals)
    filler.unlink()
    job = submit(small, "true")
    wait_for(small, job, "COMPLETED")
    small.restart()
    assert len(queue(small)) == kept


def test_job_does_not_start_while_that_cannot_be_written_and_starts_once(small: Node) -> None:
    hold = fifo(small)
    blocker = submit(small, f"read line < {hold}", f"-n{all_cpus(small)}")
    wait_for(small, blocker, "RUNNING")
    job = submit(small, "echo ran >> ran")
    filler = fill(small)
    hold.write_text("go\n")
    wait_for(small, blocker, *ENDED)
    wait_until(lambda: "full" in small.logged() or state(small, job) == "COMPLETED", "the disk is noticed")
    filler.unlink()
    wait_for(small, job, "COMPLETED")
    small.restart()
    assert not queue(small)
    assert (small.scratch / "ran").read_text() == "ran\n"


def test_what_is_said_of_a_job_while_the_disk_is_full_is_told_and_kept(small: Node) -> None:
    job = submit(small, "echo ran >> ran", "--hold")
    filler = fill(small)
    for words in (("update", str(job), "--comment=words"), ("hold", str(job)), ("node", "drain", "broken")):
        done = small.nodectl(*words)
        assert done.returncode == 0 or len(done.stderr.splitlines()) == 1, done.stderr
    filler.unlink()
    assert small.nodectl("release", str(job)).returncode == 0
    assert small.nodectl("node", "resume").returncode == 0
    wait_for(small, job, "COMPLETED")
    small.restart()
    assert (small.scratch / "ran").read_text() == "ran\n"


def faulty(body: str, **config: object) -> Node:
    node = queue_node(select_type="select/faulty", over_subscribe="force:100", **config)
    node.plugin("faulty", LINEAR + body, kind="select")
    return node


def test_daemon_does_not_start_where_the_plugin_cannot_restore_its_state() -> None:
    node = faulty("def select_p_state_restore(dir_name):\n    raise OSError(5, 'not my file')\n")
    try:
        done = subprocess.run(
            node.command("daemon"), capture_output=True, text=True, check=False, timeout=60, env=node.environment()
        )
        assert done.returncode == 1
        assert "select/faulty: select_p_state_restore" in done.stderr.splitlines()[-1]
        assert not os.path.isdir(node.base)
    finally:
        node.close()


def test_plugin_that_raises_keeps_jobs_in_the_queue_and_the_daemon_alive() -> None:
    node = faulty(
        "import os\n"
        "_job_test = select_p_job_test\n"
        "def select_p_job_test(*given):\n"
        f"    if given[5] == 0 and os.path.exists({str(Path('/run'))!r} + '/nodectl-test-raise'):\n"
        "        raise RuntimeError('broken')\n"
        "    return _job_test(*given)\n"
    )
    flag = Path("/run/nodectl-test-raise")
    flag.touch()
    try:
        node.start()
        job = submit(node, "true")
        wait_until(lambda: "select/faulty: select_p_job_test" in node.logged(), "the log names the plugin")
        assert state(node, job) == "PENDING"
        flag.unlink()
        node.call("UpdateNode", state="resume")  # something has changed
        wait_for(node, job, "COMPLETED")
    finally:
        flag.unlink(missing_ok=True)
        node.close()


def test_failing_prolog_drains_the_node_and_the_job_waits_held() -> None:
    node = queue_node(drain_on_failure=["prolog", "epilog"])
    script = node.dir / "prolog"
    script.write_text(f"#!/bin/sh\n[ ! -e {node.scratch}/broken ]\n", encoding="utf-8")
    script.chmod(0o755)
    node.configure(prolog=str(script))
    (node.scratch / "broken").touch()
    try:
        node.start()
        job = submit(node, "echo ran >> ran")
        wait_until(lambda: "is drained" in node.logged(), "the node is drained")
        record = wait_for(node, job, "PENDING")
        assert record["held"] == "admin"
        (node.scratch / "broken").unlink()
        assert node.nodectl("node", "resume").returncode == 0
        assert node.nodectl("release", str(job)).returncode == 0
        wait_for(node, job, "COMPLETED")
        assert (node.scratch / "ran").read_text() == "ran\n"
        node.assert_clean()
        assert "Traceback" not in node.logged()
    finally:
        node.close()
