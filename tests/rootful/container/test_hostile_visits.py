"""Visits by users who try what visits are not for: nobody else notices, and nobody gets more than the step has."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping

import pytest

from nodectl.launch.cgroup.constraints import cannot_decide_devices
from nodectl.model.wire import framing
from rootful import raw
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

LOOP = 7


@pytest.fixture
def node() -> Iterator[Node]:
    with running() as started:
        yield started


def begin(node: Node, *words: str) -> int:
    """A step that waits; its job."""
    client = node.popen(*words, "sh", "-c", "echo ready; sleep 60", user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    return node.last_job()


def runners(node: Node) -> list[int]:
    """The pids of step runners, 0 of one that is being forked."""
    steps: list[Mapping[str, int]] = node.call("List")["steps"]  # type: ignore[assignment]
    return [step["pid"] for step in steps]


def enter(node: Node, job: int, argv: list[str]) -> Mapping[str, object]:
    """The reply to a call of Enter."""
    ours, theirs = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    parameters = {"job": job, "step": 0, "argv": argv, "environment": {}}
    try:
        with raw.connect(node) as sock:
            framing.send(sock, {"method": "org.nodectl.Enter", "parameters": parameters}, [null, null, null, ours])
            return framing.receive(sock, framing.Inbox(1 << 20)) or {}
    finally:
        for fd in (ours, theirs, null):
            os.close(fd)


@pytest.mark.parametrize("length", [150_000, 250_000])
def test_too_many_words_cost_the_visit_and_not_the_forkserver(node: Node, length: int) -> None:
    job = begin(node)
    reply = enter(node, job, ["true", *["x" * 50_000] * (length // 50_000)])
    assert reply["error"] == "org.nodectl.LaunchRefused"
    assert "more than the forkserver takes" in str(reply)
    assert "Traceback" not in node.logged()
    assert node.run("true", user=NOBODY).returncode == 0
    assert enter(node, job, ["true", "x" * 90_000])["parameters"] == {"status": 0}
    node.nodectl("signal", "-s", "KILL", str(job))


@pytest.mark.skipif(cannot_decide_devices() != "", reason="no program can decide about devices here")
def test_nobody_is_there_before_the_steps_devices_are_confined() -> None:
    made = Node(allowed_devices=["/dev/nothing-of-this-name*"])
    try:
        device, go = made.dir / "device", made.dir / "go"
        os.mknod(device, stat.S_IFBLK | 0o666, os.makedev(LOOP, 2))
        device.chmod(0o666)
        made.plugin("waits", f'''
import os, time
def slurm_spank_init_post_opt(sp, ac, argv):
    while os.getuid() == 0 and not os.path.exists("{go}"):
        time.sleep(0.01)
''')  # fmt: skip
        made.plugstack("required waits\n")
        made.start()
        client = made.popen("sh", "-c", "echo ready; sleep 60", user=NOBODY)
        wait_until(lambda: runners(made) not in ([], [0]), "there is a step runner")
        job = str(made.last_job())
        opens = ["enter", job, "sh", "-c", f": < {device} && echo opened"]
        early = made.nodectl(*opens, user=NOBODY)
        assert "opened" not in early.stdout
        assert early.returncode == 1
        assert "has not begun" in early.stderr
        go.touch()
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        assert "Operation not permitted" in made.nodectl(*opens, user=NOBODY).stderr
        made.nodectl("signal", "-s", "KILL", job)
        client.communicate(timeout=PATIENCE)
        made.assert_clean()
    finally:
        made.close()
