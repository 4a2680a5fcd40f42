"""Descriptors that users send, and descriptors that run out, cost the daemon none of its own."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodectl.model.wire import framing
from rootful import hostile
from rootful.fuse import unanswered_file
from rootful.listener.test_bad_clients import MOST
from rootful.node import NOBODY, Node, wait_until
from rootful.raw import call, connect, launch


def held(node: Node) -> int:
    assert node.daemon is not None
    return len(os.listdir(f"/proc/{node.daemon.pid}/fd"))


@pytest.fixture
def null() -> int:
    return os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)


def running(node: Node) -> tuple[subprocess.Popen[str], int]:
    """A step that runs until it is killed, and its job."""
    client = node.popen("sh", "-c", "echo on; exec sleep 60", user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    return client, node.last_job()


def wait(job: int) -> bytes:
    return call("org.nodectl.Wait", parameters={"job": job, "step": 0})


def test_what_waits_behind_a_call_is_no_more_than_one_message_may_be(served: Node, null: int) -> None:
    """Else one connection could hold a thousand descriptors of the daemon's, and half a gigabyte of its memory."""
    client, job = running(served)
    hello = call("org.nodectl.Hello")
    for burst, fds in ((hello, 10), (call("org.nodectl.Hello", parameters={"x": "x" * (3 << 20)}), 0)):
        with connect(served) as sock:
            sock.sendall(wait(job))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for _ in range(3):
                    sent = socket.send_fds(sock, [burst], [null] * fds)
                    sock.sendall(burst[sent:])
            reply = framing.receive(sock, framing.Inbox(1 << 20))
            assert reply is not None
            assert "without waiting for a reply" in str(reply["parameters"])
    client.kill()
    client.communicate()


def test_a_reply_that_nobody_reads_keeps_the_calls_behind_it_waiting(served: Node) -> None:
    with connect(served) as sock:
        question = call("org.varlink.service.GetInterfaceDescription", parameters={"interface": "org.nodectl"})
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for _ in range(60):
            sock.sendall(question)
        inbox = framing.Inbox(1 << 20)
        for _ in range(60):
            reply = framing.receive(sock, inbox)
            assert reply is not None
            assert "interface org.nodectl" in str(reply["parameters"])


def test_descriptors_that_run_out_at_any_moment_of_a_launch_are_not_lost(node: Node) -> None:
    assert node.run("true").returncode == 0
    assert node.daemon is not None
    node.assert_clean()
    before = held(node)
    for more in range(1, 24):
        resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE, (before + more, 20_000))
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.run("true", timeout=2)
        resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE, (20_000, 20_000))
        wait_until(lambda: held(node) <= before, f"with {more} descriptors nothing is lost")
    assert node.run("true").returncode == 0


@pytest.fixture
def lingering() -> Iterator[Callable[[], int]]:
    with hostile.lingering() as make:
        yield make


def give(node: Node, data: bytes, fds: list[int]) -> None:
    """Sends them to the service, whose they are alone before it reads: else it might be our own close(2) that waits."""
    listener = node.listener()
    status = Path(f"/proc/{listener}/stat")
    os.kill(listener, signal.SIGSTOP)
    try:
        wait_until(lambda: status.read_text(encoding="ascii").rpartition(") ")[2].startswith("T"), "it stands still")
        with connect(node) as sock:
            socket.send_fds(sock, [data], fds)
            for fd in fds:
                os.close(fd)
    finally:
        os.kill(listener, signal.SIGCONT)


@pytest.mark.parametrize("data", [call("org.nodectl.Hello"), launch(), b"no message\0", b'{"half'])
def test_what_takes_long_to_close_hinders_nobody(served: Node, lingering: Callable[[], int], data: bytes) -> None:
    slow = [lingering() for _ in range(20)]
    for some in (slow[:4], slow[4:]):
        give(served, data, some)
    assert served.run("true").returncode == 0


def asked_and_left(node: Node, data: bytes) -> int:
    """How many connections of one user's, each of which asked and went, had an answer to Hello."""
    answers, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            for _ in range(MOST + 20):
                with connect(node) as sock:
                    sock.sendall(call("org.nodectl.Hello"))
                    reply = framing.receive(sock, framing.Inbox(1 << 20)) or {}
                    sock.sendall(data)
                    os.write(told, b"" if "error" in reply else b"+")
        os._exit(0)
    os.close(told)
    os.waitpid(pid, 0)
    with os.fdopen(answers, "rb") as file:
        return len(file.read())


def test_calls_whose_client_has_gone_are_counted_and_those_that_only_ask_are_over(served: Node) -> None:
    client, job = running(served)
    stepd = next(pid for pid, name in served.processes() if name.startswith("stepd"))
    os.kill(stepd, signal.SIGSTOP)
    assert asked_and_left(served, wait(job)) == MOST + 20
    signalling = call("org.nodectl.Signal", parameters={"job": job, "step": 0, "signal": 18})
    assert asked_and_left(served, signalling) <= MOST
    os.kill(stepd, signal.SIGCONT)
    client.kill()
    client.communicate()
    wait_until(lambda: served.run("true", user=NOBODY).returncode == 0, "what was counted is free again")


def test_a_step_whose_file_cannot_be_closed_holds_up_no_other(served: Node, null: int, tmp_path: Path) -> None:
    answers, told = os.pipe()
    with unanswered_file(tmp_path / "file"):
        client = os.fork()
        if client == 0:
            file = os.open(tmp_path / "file", os.O_RDWR)
            os.setuid(NOBODY.pw_uid)  # to whose session nobody else comes
            sock = connect(served)
            socket.send_fds(sock, [launch()], [file, null, null])
            reply = framing.receive(sock, framing.Inbox(1 << 20))
            os.write(told, b"+" if reply and "error" not in reply else b"-")
            signal.pause()
        assert os.read(answers, 1) == b"+"
        for _ in range(3):
            assert served.run("true").returncode == 0
        os.kill(client, signal.SIGKILL)
    os.waitpid(client, 0)
