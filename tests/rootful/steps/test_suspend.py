"""Suspended steps: nothing of them runs, they stay what they are, and nothing about them blocks others."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import STEP
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_until
from rootful.raw import launch

# A child in a session of its own too; both count while they run.
COUNT = "(setsid sh -c 'while :; do echo >> child; sleep 0.05; done' &) ; while :; do echo >> task; sleep 0.05; done"
GRACE = 1


@pytest.fixture
def node() -> Iterator[Node]:
    with running(suspend_grace_time=GRACE, unkillable_step_timeout=5) as started:
        yield started


class Counting:
    """A running step of an ordinary user's whose processes count."""

    def __init__(self, node: Node, *words: str) -> None:
        self.node = node
        self.files = [node.scratch / name for name in ("child", "task")]
        self.client = node.popen(*words, "sh", "-c", COUNT, user=NOBODY)
        wait_until(lambda: all(path.exists() for path in self.files), "the step counts")
        self.job = node.last_job()

    def sizes(self) -> list[int]:
        return [path.stat().st_size for path in self.files]

    def stands_still(self) -> bool:
        before = self.sizes()
        time.sleep(0.3)
        return self.sizes() == before

    def goes_on(self) -> None:
        before = self.sizes()
        wait_until(lambda: all(a < b for a, b in zip(before, self.sizes(), strict=True)), "both go on")

    def state(self) -> str:
        return str(self.node.call("Show", job=self.job, step=0)["record"]["state"])  # type: ignore[index]

    def kill(self) -> int:
        done = self.node.nodectl("signal", "-s", "KILL", str(self.job), user=NOBODY)
        assert done.returncode == 0, done.stderr
        return self.client.wait(PATIENCE)


def test_suspended_step_stands_still_and_goes_on_when_resumed(node: Node) -> None:
    step = Counting(node)
    assert node.nodectl("suspend", str(step.job)).returncode == 0
    assert step.stands_still()
    assert step.state() == "SUSPENDED"
    assert '"SUSPENDED"' in node.nodectl("ps", "--json").stdout
    assert node.run("echo", "others run").stdout == "others run\n"
    assert node.nodectl("resume", str(step.job)).returncode == 0
    step.goes_on()
    assert step.state() == "RUNNING"
    assert step.kill() == 128 + 9
    assert float(str(node.record(step.job)["suspended_seconds"])) >= GRACE


def test_suspended_step_takes_no_signal_but_kill(node: Node) -> None:
    step = Counting(node)
    node.nodectl("suspend", str(step.job))
    refused = node.nodectl("signal", str(step.job), user=NOBODY)
    assert refused.returncode == 1
    assert refused.stderr.endswith(f"step {step.job}.0 is suspended; resume it, or end it with KILL\n")
    assert step.kill() == 128 + 9
    assert node.record(step.job)["state"] == "CANCELLED"


def test_what_cannot_be_suspended_or_resumed_is_refused(node: Node) -> None:
    step = Counting(node)
    name = f"{step.job}.0"
    assert "is not suspended" in node.nodectl("resume", name).stderr
    others = node.nodectl("suspend", name, user=OTHER)
    assert (others.returncode, "no step" in others.stderr) == (1, True)
    node.nodectl("suspend", name)
    again = node.nodectl("suspend", name)
    assert (again.returncode, "is suspended already" in again.stderr) == (1, True)
    step.kill()
    ended = node.nodectl("suspend", name)
    assert (ended.returncode, "has ended: CANCELLED" in ended.stderr) == (1, True)


def test_time_limit_and_charge_go_on_while_a_step_is_suspended_by_its_owner(node: Node) -> None:
    """It keeps memory and devices: else its owner could keep them for ever."""
    step = Counting(node, "--time=0:10")
    assert node.nodectl("suspend", str(step.job), user=NOBODY).returncode == 0
    assert step.state() == "SUSPENDED"
    assert step.client.wait(PATIENCE) == 128 + 15
    record = node.record(step.job)
    assert (record["state"], record["reason"]) == ("TIMEOUT", "time limit of 10 s")
    assert record["suspended_seconds"] == 0


def test_an_owner_resumes_what_the_owner_has_suspended(node: Node) -> None:
    step = Counting(node)
    assert node.nodectl("suspend", str(step.job), user=NOBODY).returncode == 0
    assert step.stands_still()
    assert node.nodectl("resume", str(step.job), user=NOBODY).returncode == 0
    step.goes_on()
    assert step.kill() == 128 + 9
    assert node.record(step.job)["suspended_seconds"] == 0


def test_time_limit_does_not_count_while_an_admin_has_suspended_a_step(node: Node) -> None:
    step = Counting(node, "--time=0:10")
    node.nodectl("suspend", str(step.job))
    time.sleep(10)
    assert step.state() == "SUSPENDED"
    node.nodectl("resume", str(step.job))
    step.goes_on()
    assert step.client.wait(PATIENCE) == 128 + 15
    record = node.record(step.job)
    assert (record["state"], record["reason"]) == ("TIMEOUT", "time limit of 10 s")


def test_task_may_prepare_for_its_suspension_and_is_told_of_its_end() -> None:
    script = "trap 'echo TSTP >> told' TSTP; trap 'echo CONT >> told' CONT; touch there; while :; do sleep 0.05; done"
    with running(suspend_grace_time=3) as node:  # where a shell has to wait for a CPU
        client = node.popen("sh", "-c", script, user=NOBODY)
        wait_until((node.scratch / "there").exists, "the step runs")
        job = str(node.last_job())
        node.nodectl("suspend", job)
        told = node.scratch / "told"
        assert told.read_text() == "TSTP\n"
        node.nodectl("resume", job)
        wait_until(lambda: told.read_text() == "TSTP\nCONT\n", "it was told")
        node.nodectl("signal", "-s", "KILL", job)
        client.wait(PATIENCE)


def test_client_that_goes_away_ends_a_suspended_step(node: Node) -> None:
    step = Counting(node)
    node.nodectl("suspend", str(step.job))
    step.client.kill()
    wait_until(lambda: "state" in node.record(step.job) and step.state() == "CANCELLED", "it has ended")
    node.assert_clean()


@pytest.mark.parametrize("number", [15, 9])
def test_next_daemon_knows_that_a_step_is_suspended_and_resumes_it(node: Node, number: int) -> None:
    step = Counting(node)
    node.nodectl("suspend", str(step.job))
    node.restart(number)
    assert step.stands_still()
    assert '"SUSPENDED"' in node.nodectl("ps", "--json").stdout
    node.nodectl("resume", str(step.job))
    step.goes_on()
    step.kill()


def test_suspension_without_cgroups_stops_what_the_tracker_finds() -> None:
    with running(suspend_grace_time=0, proctrack_type="proctrack/linuxproc", task_plugin=["task/affinity"]) as node:
        step = Counting(node)
        assert node.nodectl("suspend", str(step.job)).returncode == 0
        wait_until(step.stands_still, "SIGSTOP has come everywhere")
        assert node.nodectl("resume", str(step.job)).returncode == 0
        step.goes_on()
        step.kill()


def replies(fd: int) -> Iterator[dict[str, Any]]:
    """The messages of a step that are no events."""
    text = b""
    while True:
        assert select.select([fd], [], [], PATIENCE)[0], text
        text += os.read(fd, 1 << 16)
        *messages, text = text.split(b"\0")
        yield from (message for message in map(json.loads, messages) if "event" not in message)


def test_step_does_not_go_on_by_its_users_word_to_its_runner_while_others_may_have_its_cpus(node: Node) -> None:
    with contextlib.ExitStack() as stack:
        os.seteuid(NOBODY.pw_uid)
        try:
            sock = socket.socket(fileno=framing.connect(str(node.socket)).detach())
        finally:
            os.seteuid(0)
        stack.enter_context(sock)
        null = os.open(os.devnull, os.O_RDWR)
        stack.callback(os.close, null)
        program = ["sh", "-c", ">there; exec sleep 1000"]
        socket.send_fds(sock, [launch(argv=program, cwd=str(node.scratch))], [null] * 3)
        reply, (news, orders), *_ = socket.recv_fds(sock, 1 << 16, 2)
        stack.callback(os.close, news)
        stack.callback(os.close, orders)
        job = json.loads(reply.rstrip(b"\0"))["parameters"]["job"]
        wait_until((node.scratch / "there").exists, "it runs")
        said = replies(news)
        assert "parameters" in next(said)  # it is attached
        # Nor does it stand still so that the daemon, which does not know, fails to stop it for others.
        for method, before in (("Suspend", "RUNNING"), ("Resume", "SUSPENDED")):
            if before == "SUSPENDED":
                assert node.nodectl("suspend", str(job), user=NOBODY).returncode == 0
            os.write(orders, framing.encode({"method": f"{STEP}.{method}", "parameters": {}}))
            assert next(said).get("error") == f"{STEP}.NotPermitted"
            assert node.call("Show", job=job, step=0)["record"]["state"] == before  # type: ignore[index]
        assert node.nodectl("signal", "-s", "KILL", str(job), user=NOBODY).returncode == 0
        wait_until(lambda: "pid" not in node.call("Show", job=job, step=0)["record"], "it has ended")  # type: ignore[operator]
