"""The daemon comes and goes; steps do not notice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from nodectl.model.wire import framing
from rootful.node import NOBODY, PATIENCE, Node, running, wait_for_answer, wait_until
from rootful.stage import finished

ONE_THAT_WAITS = 15  # seconds: a daemon that finds a lock held by one that does not serve
ENDINGS = [signal.SIGTERM, signal.SIGINT, signal.SIGKILL]


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    with running() as started:
        yield started


@pytest.fixture
def node(module_node: Node) -> Node:
    for path in module_node.scratch.iterdir():
        path.unlink()
    return module_node


def sleeper(node: Node, *, status: int = 0) -> subprocess.Popen[str]:
    """A step that has begun and ends when the file `go` appears, or in the usual ways."""
    go, there = node.scratch / "go", node.scratch / "there"
    script = (
        f"trap 'echo told; exit 4' USR1; : >{there}; while ! [ -e {go} ]; do sleep 0.02; done; echo ran; exit {status}"
    )
    client = node.popen("-J", "sleeper", "sh", "-c", script, user=NOBODY)
    wait_until(there.exists, "the step has begun")
    wait_until(lambda: all(step["pid"] for step in node.call("List")["steps"]), "its runner's pid is known")  # type: ignore[attr-defined]
    wait_for_answer(client)
    return client


def running_steps(node: Node) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(node.nodectl("ps", "--json").stdout)["steps"]
    return found


def recorded(node: Node, job: int) -> dict[str, object]:
    wait_until(lambda: "exit_status" in node.record(job), f"step {job}.0 is recorded")
    return node.record(job)


@pytest.mark.parametrize("number", ENDINGS)
@pytest.mark.parametrize("status", [0, 3])
def test_step_ends_as_if_its_daemon_had_not_been_replaced(node: Node, number: int, status: int) -> None:
    client = sleeper(node, status=status)
    (before,) = running_steps(node)
    node.restart(number)
    (after,) = running_steps(node)
    assert after == before
    assert after["name"] == "sleeper"
    job = int(str(after["job"]))
    shown = node.record(job)
    assert shown["state"] == "RUNNING"
    assert [task["status"] for task in shown["tasks"]] == [None]  # type: ignore[attr-defined]
    (node.scratch / "go").touch()
    assert finished(client)[:2] == (status, "ran\n")
    record = recorded(node, job)
    assert record["exit_status"] == status
    assert record["state"] == ("FAILED" if status else "COMPLETED")
    assert running_steps(node) == []
    node.assert_clean()


@pytest.mark.parametrize("number", ENDINGS)
def test_step_that_ends_between_two_daemons_is_shown_by_the_second(node: Node, number: int) -> None:
    client = sleeper(node, status=3)
    (step,) = running_steps(node)
    node.stop(number)
    (node.scratch / "go").touch()
    assert finished(client)[:2] == (3, "ran\n")
    node.start()
    record = recorded(node, int(str(step["job"])))
    assert (record["state"], record["exit_status"]) == ("FAILED", 3)
    assert record["reason"] == "task 0 ended with exit code 3"
    node.assert_clean()


@pytest.mark.parametrize("number", ENDINGS)
def test_signals_reach_a_step_that_an_earlier_daemon_began(node: Node, number: int) -> None:
    client = sleeper(node)
    (step,) = running_steps(node)
    node.restart(number)
    done = node.nodectl("signal", "-s", "USR1", str(step["job"]), user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    assert finished(client)[:2] == (4, "told\n")
    node.assert_clean()


def test_step_that_an_earlier_daemon_began_can_be_cancelled(node: Node) -> None:
    client = sleeper(node)
    (step,) = running_steps(node)
    node.restart(signal.SIGKILL)
    assert node.nodectl("signal", str(step["job"])).returncode == 0
    assert finished(client)[0] == 128 + signal.SIGTERM
    assert recorded(node, int(str(step["job"])))["state"] == "CANCELLED"
    node.assert_clean()


@pytest.mark.parametrize("version", ["earlier", "later"])
def test_step_that_another_version_began_goes_on(node: Node, version: str) -> None:
    client = sleeper(node)
    (step,) = running_steps(node)
    node.stop()
    spec = next(node.steps.glob("*.json"))
    fields = json.loads(spec.read_text(encoding="ascii"))
    kept = {"job_id", "step_id", "uid", "gid", "ntasks", "argv", "cgroup", "name"}
    other = {name: fields[name] for name in kept} if version == "earlier" else fields | {"invented": [1]}
    spec.write_text(json.dumps(other), encoding="ascii")
    node.start()
    assert [one["job"] for one in running_steps(node)] == [step["job"]]
    (node.scratch / "go").touch()
    assert finished(client)[:2] == (0, "ran\n")
    assert recorded(node, int(str(step["job"])))["state"] == "COMPLETED"
    node.assert_clean()


def test_sighup_keeps_steps_and_service(node: Node) -> None:
    client = sleeper(node)
    before = running_steps(node)
    assert node.daemon is not None
    for _ in range(3):
        node.daemon.send_signal(signal.SIGHUP)
    assert running_steps(node) == before
    assert node.run("true", user=NOBODY).returncode == 0
    assert node.daemon.poll() is None
    (node.scratch / "go").touch()
    assert finished(client) == (0, "ran\n", "")
    node.assert_clean()


def test_job_numbers_go_on_after_a_restart(node: Node) -> None:
    numbers = []
    for number in ENDINGS:
        done = node.run("sh", "-c", "echo $SLURM_JOB_ID", user=NOBODY)
        numbers.append(int(done.stdout))
        node.restart(number)
    assert numbers == sorted(set(numbers))
    assert [node.record(number)["state"] for number in numbers] == ["COMPLETED"] * len(numbers)


def test_second_daemon_on_one_runtime_directory_refuses(node: Node) -> None:
    client = sleeper(node)
    began = time.monotonic()
    second = subprocess.run(
        node.command("daemon"), capture_output=True, text=True, check=False, timeout=60, env=node.environment()
    )
    assert second.returncode == 1
    (line,) = second.stderr.splitlines()
    assert f"another daemon serves {node.values['runtime_dir']}; `nodectl doctor` has its pid" in line
    assert time.monotonic() - began < ONE_THAT_WAITS
    assert len(running_steps(node)) == 1  # the first one has not noticed
    (node.scratch / "go").touch()
    assert finished(client) == (0, "ran\n", "")
    node.assert_clean()


def test_daemon_starts_at_once_after_one_that_was_killed(node: Node) -> None:
    began = time.monotonic()
    node.restart(signal.SIGKILL)
    assert time.monotonic() - began < ONE_THAT_WAITS
    assert os.path.exists(node.socket)


def test_a_history_that_cannot_be_written_loses_no_step(node: Node) -> None:
    """Ended steps wait, are known meanwhile, and are written when there is room, by this daemon or the next."""
    node.stop()
    state = node.dir / "state"
    state.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", state], check=True)
    try:
        node.start()
        assert node.run("true").returncode == 0
        held = node.popen("cat", stdin=subprocess.PIPE)
        wait_until(lambda: len(node.call("List")["steps"]) == 1, "it runs")  # type: ignore[arg-type]
        job = node.last_job()
        with contextlib.suppress(OSError), (state / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        held.communicate("x" * 10)
        wait_until(lambda: "into the history" in node.logged(), "it cannot be written")
        assert node.record(job)["state"] == "COMPLETED"
        assert node.trace(job)
        (state / "filler").unlink()
        node.restart(signal.SIGKILL)
        assert node.record(job)["state"] == "COMPLETED"
        wait_until(lambda: not list(node.steps.iterdir()), "its files are gone")
        assert "Traceback" not in node.logged()
    finally:
        node.stop()
        subprocess.run(["umount", state], check=True)
        node.start()


def test_a_crowd_at_a_busy_steps_socket_does_not_keep_the_next_daemon_from_starting(node: Node) -> None:
    begun, go = node.scratch / "begun", node.scratch / "go"
    epilog = node.dir / "epilog"
    epilog.write_text(f"#!/bin/sh\n: >{begun}\nuntil [ -e {go} ]; do sleep 0.02; done\n", encoding="utf-8")
    epilog.chmod(0o755)
    node.configure(task_epilog=str(epilog))
    node.restart()
    client = node.popen("-n2", "sh", "-c", "[ $SLURM_PROCID = 0 ] || exec sleep 300", user=NOBODY)
    wait_until(begun.exists, "the step runner waits for a script")
    wait_for_answer(client)
    job = node.last_job()
    crowd = []
    with contextlib.suppress(BlockingIOError):
        while True:
            crowd.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            crowd[-1].connect(str(node.steps / f"{job}.0.sock"))
    del node.values["task_epilog"]
    node.configure()
    node.restart(signal.SIGKILL)
    for sock in crowd:
        sock.close()
    go.touch()
    wait_until(lambda: node.nodectl("signal", str(job)).returncode == 0, "the step is reached")
    client.communicate(timeout=PATIENCE)
    node.assert_clean()
    assert node.record(job)["state"] == "CANCELLED"


def test_a_step_that_is_asked_more_than_it_reads_answers_all_in_the_end(node: Node) -> None:
    client = node.popen("sh", "-c", "echo on; exec sleep 60", user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    job = node.last_job()
    stepd = next(pid for pid, name in node.processes() if name.startswith("stepd"))
    os.kill(stepd, signal.SIGSTOP)
    asking = [framing.connect(str(node.socket)) for _ in range(600)]
    for sock in asking:
        framing.send(sock, {"method": "org.nodectl.Signal", "parameters": {"job": job, "step": 0, "signal": 18}})
    assert node.call("Show", job=job, step=0)["record"]["state"] == "RUNNING"  # type: ignore[index]
    os.kill(stepd, signal.SIGCONT)
    for sock in asking:
        sock.settimeout(PATIENCE)
        assert framing.receive(sock, framing.Inbox(65_536)) == {"parameters": {}}
        sock.close()
    client.kill()
    client.communicate()
