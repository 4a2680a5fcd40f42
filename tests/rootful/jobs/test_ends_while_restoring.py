"""Steps that end while a new daemon takes over the queue: the plugins wait for the files that the tests make."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_for_answer, wait_until
from rootful.queued import queue, queue_node, show, submit, wait_for

WAIT = """
import os, time

def wait(name):
    if os.path.exists({place!r} + name + ".hold"):
        open({place!r} + name + ".held", "w").close()
        while not os.path.exists({place!r} + name + ".go"):
            time.sleep(0.01)
"""
SELECT = """
from nodectl.plugins.select import cons_tres as real

globals().update({name: value for name, value in vars(real).items() if name.startswith("select_p_")})

def select_p_job_mem_confirm(job_ptr):
    wait("restore")
    return real.select_p_job_mem_confirm(job_ptr)
"""
SPANK = """
def slurm_spank_exit(sp, ac, argv):
    with open("/proc/self/comm") as file:
        if file.read().startswith("stepd"):
            wait("exit")

def fini():
    with open("/proc/self/comm") as file:
        if file.read().startswith("stepd"):
            wait("fini")
"""
SCRIPT = "touch began; until [ -e end ]; do sleep 0.02; done; echo ran >> ran; exit 3"


@pytest.fixture
def node() -> Iterator[Node]:
    node = queue_node(select_type="select/waits", over_subscribe="force:4")
    wait = WAIT.format(place=f"{node.dir}/")
    node.plugin("waits", wait + SELECT, "select")
    node.plugin("waits", wait + SPANK)
    node.plugstack("optional waits\n")
    try:
        yield node.start()
        wait_until(lambda: not queue(node), "the queue is empty")
        node.assert_clean()
        assert "Traceback" not in node.logged()
    finally:
        for name in ("restore", "exit", "fini"):
            at(node, name, "go").touch()
        node.close()


def at(node: Node, name: str, suffix: str) -> Path:
    return node.dir / f"{name}.{suffix}"


def hold(node: Node, *names: str) -> None:
    for name in names:
        at(node, name, "hold").touch()


def let_go(node: Node, name: str) -> None:
    at(node, name, "go").touch()


def wait_held(node: Node, name: str) -> None:
    wait_until(at(node, name, "held").exists, f"{name} waits")


def begin_daemon(node: Node) -> threading.Thread:
    """The next daemon has taken over the steps, and is held while it restores the queue."""
    node.stop(signal.SIGKILL)
    starting = threading.Thread(target=node.start)
    starting.start()
    wait_held(node, "restore")
    return starting


def finish_daemon(node: Node, starting: threading.Thread) -> None:
    let_go(node, "restore")
    starting.join(PATIENCE)
    assert not starting.is_alive()


@pytest.mark.parametrize("runner", ["has ended", "has still to end", "has left no record yet"])
def test_jobs_that_end_while_the_queue_is_restored_end_once_as_they_did(node: Node, runner: str) -> None:
    """A job with a row in the store, and that of a `run`, which has none while it runs."""
    place = {"has ended": "", "has still to end": "fini", "has left no record yet": "exit"}[runner]
    hold(node, "restore", *([place] if place else []))
    batch = submit(node, SCRIPT, "-n1")
    wait_until((node.scratch / "began").exists, "the script has begun")
    client = node.popen("sh", "-c", f"until [ -e {node.scratch}/end ]; do sleep 0.02; done; exit 4", user=NOBODY)
    wait_for_answer(client)
    run = max(int(row["id"]) for row in queue(node))
    starting = begin_daemon(node)
    (node.scratch / "end").touch()
    if place:
        wait_held(node, place)
    if place != "exit":
        wait_until(lambda: len(list(node.steps.glob("*.record"))) == 2, "both steps have left their records")
    if not place:
        wait_until(lambda: not [name for _, name in node.processes() if name.startswith("stepd")], "both have ended")
    finish_daemon(node, starting)
    if place:
        let_go(node, place)
    assert client.wait(PATIENCE) == 4
    record = wait_for(node, batch, "FAILED")
    assert (record["exit_code"], record["restarts"]) == (3, 0)
    assert (node.scratch / "ran").read_text() == "ran\n"
    wait_until(lambda: show(node, run)["state"] == "FAILED", "the job of the run has ended")
    assert [node.record(job)["exit_status"] for job in (run,)] == [4]
