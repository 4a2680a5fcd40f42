"""Who asks is fixed when a connection is accepted: no program escapes its confinement by ending before it is judged, or
where steps have no cgroups; and a strict step changes nothing of its user's but its own job.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from nodectl.model.wire import framing
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_until
from rootful.raw import call, launch

PYTHON = "/usr/bin/python3"
HELLO = call("org.nodectl.Hello")
WITHOUT_CGROUPS: dict[str, object] = {"task_plugin": ["task/affinity"], "proctrack_type": "proctrack/pgid"}
# It connects to the daemon, hands the connection to whoever is at the other end of its stdin, and ends.
CONNECTS = """
import os, socket, sys
ours = socket.socket(fileno=0)
ours.recv(1)
sock = socket.socket(socket.AF_UNIX); sock.connect({path!r})
if {hello!r}: sock.sendall({hello!r}); sock.recv(1 << 16)
socket.send_fds(ours, [b"x"], [sock.fileno()])
"""


@pytest.fixture
def free() -> Iterator[Node]:
    """A node without a floor."""
    with running(secure="none") as started:
        yield started


@contextlib.contextmanager
def left_by_a_step(node: Node, level: str, *, accepted: bool) -> Iterator[socket.socket]:
    """A connection that a program of a step of this level has made. The step is over. Where the connection is not
    `accepted`, that happens after the end of the step.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    script = CONNECTS.format(path=str(node.socket), hello=HELLO if accepted else b"")
    with ours, theirs, node.popen(f"--secure={level}", PYTHON, "-c", script, user=NOBODY, stdin=theirs) as step:
        wait_until(lambda: node.call("List")["steps"], "the step runs")
        listener = node.listener()
        if not accepted:
            os.kill(listener, signal.SIGSTOP)
        ours.send(b"x")
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
        assert step.wait(PATIENCE) == 0
        if not accepted:
            with contextlib.suppress(ProcessLookupError):  # it was silent for too long, and another has its place
                os.kill(listener, signal.SIGCONT)
        wait_until(lambda: not node.call("List")["steps"], "the step is over")
        with socket.socket(fileno=fd) as sock:
            sock.settimeout(PATIENCE)
            yield sock


def answer(sock: socket.socket, message: bytes) -> Mapping[str, object]:
    sock.sendall(message)
    reply = framing.receive(sock, framing.Inbox(1 << 20))
    assert reply is not None
    return reply


ASKED = {
    "launch": launch(secure="none", cwd="/tmp"),
    "cancel": call("org.nodectl.Cancel", parameters={"users": ["nobody"]}),
}


@pytest.mark.parametrize("asked", ["launch", "cancel"])
@pytest.mark.parametrize("level", ["default", "strict"])
@pytest.mark.parametrize("accepted", [False, True])
def test_what_a_confined_step_has_asked_before_it_ended_is_not_done(
    free: Node, level: str, asked: str, *, accepted: bool
) -> None:
    with left_by_a_step(free, level, accepted=accepted) as sock:
        reply = answer(sock, ASKED[asked])
    assert reply["error"] == "org.nodectl.NotPermitted", reply
    why = "is of a step that is over" if accepted else "connected and has ended"
    assert f"{why}: it starts and changes nothing" in str(reply["parameters"])


# Without cgroups.


@pytest.fixture
def bare() -> Iterator[Node]:
    """A node without a floor whose steps have no cgroups."""
    with running(secure="none", **WITHOUT_CGROUPS) as started:
        yield started


def within(node: Node, level: str, script: str) -> subprocess.CompletedProcess[str]:
    """A step of this level that runs a shell script, in which `nodectl` is the command."""
    return node.run(f"--secure={level}", "sh", "-c", f"{function(node)} {script}", user=NOBODY)


def function(node: Node) -> str:
    return f'nodectl() {{ {shlex.join(node.command())} "$@"; }};'


def test_without_cgroups_a_confined_step_gets_none_with_more_rights(bare: Node) -> None:
    done = within(bare, "strict", "nodectl run --secure=none true")
    assert done.returncode == 1
    assert "(of which the caller may be), at strict, starts no other" in done.stderr
    done = within(bare, "default", "nodectl run --secure=none true")
    assert "secure: none is below default, the level of step" in done.stderr
    assert within(bare, "none", "nodectl run --secure=none true").returncode == 0


def test_without_cgroups_what_outlives_its_step_starts_nothing(bare: Node) -> None:
    out, go, there = (bare.scratch / name for name in ("out", "go", "there"))
    os.mkfifo(go, 0o666)
    go.chmod(0o666)
    wait = f"{function(bare)} >{there}; read line <{go}; nodectl run --secure=none true 2>{out}.new; mv {out}.new {out}"
    leaves = f"setsid sh -c {shlex.quote(wait)} </dev/null >/dev/null 2>&1 &"
    done = within(bare, "default", f"{leaves} while ! [ -e {there} ]; do sleep 0.01; done")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not bare.call("List")["steps"], "the step is over")
    go.write_text("go\n")
    wait_until(out.exists, "what is left of the step has asked")
    assert "has no_new_privs, as what is left of a confined step" in out.read_text()


def test_without_cgroups_a_users_login_is_in_no_step(bare: Node) -> None:
    with waiting(bare, "--secure=strict"):
        done = bare.run("--secure=none", "true", user=NOBODY)
        assert done.returncode == 0, done.stderr


# What a strict step may change.


@contextlib.contextmanager
def waiting(node: Node, *options: str) -> Iterator[str]:
    """A job of nobody's that waits; its number."""
    with node.popen(*options, "sh", "-c", "echo ready; exec sleep 600", user=NOBODY) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        name = str(node.last_job())
        yield name
        node.nodectl("signal", "-s", "KILL", name)
        client.communicate(timeout=PATIENCE)


OTHERS_JOB = ["signal -s USR1", "suspend", "cancel", "hold", "release", "update --pids-max=50", "cancel -u nobody #"]


@pytest.mark.parametrize("words", OTHERS_JOB)
def test_a_strict_step_changes_none_of_its_users_other_jobs(free: Node, words: str) -> None:
    with waiting(free) as other:
        done = within(free, "strict", f"nodectl {words} {other}")
        assert ", at strict, changes nothing but its own job" in done.stderr, done
        assert done.returncode == 1
        assert [step["state"] for step in free.call("List")["steps"]] == ["RUNNING"]  # type: ignore[attr-defined]


def test_a_step_that_is_not_strict_changes_its_users_other_jobs(free: Node) -> None:
    with waiting(free) as other:
        assert within(free, "default", f"nodectl signal -s CONT {other}").returncode == 0


@pytest.mark.parametrize("words", ["cancel", "signal -s KILL"])
def test_a_strict_step_ends_its_own_job(free: Node, words: str) -> None:
    done = within(free, "strict", f"nodectl {words} $SLURM_JOB_ID; exec sleep 600")
    assert done.returncode not in (0, 1), done
    assert "changes nothing" not in done.stderr


def test_who_may_change_is_another_user_as_before(free: Node) -> None:
    with waiting(free) as job:
        done = free.nodectl("cancel", job, user=OTHER)
        assert done.returncode == 1
        assert free.nodectl("signal", "-s", "CONT", job, user=NOBODY).returncode == 0


@pytest.mark.parametrize("level", ["default", "strict"])
def test_a_confined_step_changes_no_script_of_a_job_with_more_rights(free: Node, level: str) -> None:
    submitted = free.nodectl("submit", "--parsable", "--hold", "--wrap=echo old", user=NOBODY)
    job = submitted.stdout.strip()
    done = within(free, level, f"nodectl update {job} --command='echo new'")
    assert done.returncode == 1
    words = "secure: none is below default, the level of step" if level == "default" else "at strict, changes nothing"
    assert words in done.stderr
    assert "echo old" in str(free.call("Script", job=job)["script"])
    assert within(free, "none", f"nodectl update {job} --command='echo new'").returncode == 0
    free.nodectl("cancel", job)


def test_a_job_from_a_confined_step_is_repeated_as_confined(free: Node) -> None:
    done = within(free, "default", "nodectl submit --parsable --hold --wrap=true")
    job = done.stdout.strip()
    again = free.nodectl("resubmit", "--parsable", "--hold", job).stdout.strip()  # root's
    try:
        for name in (job, again):
            request: Any = free.call("Script", job=name)["request"]
            assert request["secure"] == "default"
    finally:
        free.nodectl("cancel", job, again)
