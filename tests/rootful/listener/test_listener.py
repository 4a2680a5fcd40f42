"""What one user sends, whatever it is and however long it takes, costs that user's session and nobody else anything."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from nodectl.model.wire import framing
from rootful.fuse import unanswered_file
from rootful.hostile import as_user, lingering
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until
from rootful.raw import call, connect, launch

CALLS = 100


def descriptors(node: Node) -> int:
    assert node.daemon is not None
    return len(os.listdir(f"/proc/{node.daemon.pid}/fd"))


def threads(node: Node) -> int:
    assert node.daemon is not None
    return len(os.listdir(f"/proc/{node.daemon.pid}/task"))


def test_calls_with_descriptors_that_never_close_take_nothing_of_the_daemons(served: Node) -> None:
    with lingering() as make:
        mine = [make() for _ in range(8)]
        assert served.run("true", user=OTHER).returncode == 0
        before = descriptors(served), threads(served)

        def act() -> None:
            for _ in range(CALLS):
                with contextlib.suppress(OSError), connect(served) as sock:
                    socket.send_fds(sock, [call("org.nodectl.Hello")], mine)
            for fd in mine:
                os.close(fd)

        with as_user(act):
            for fd in mine:
                os.close(fd)
            for _ in range(3):
                assert served.run("true", user=OTHER).returncode == 0
            assert threads(served) <= before[1]
            wait_until(lambda: descriptors(served) <= before[0] + 2, "the daemon holds what it held")


def test_a_file_whose_close_has_no_answer_keeps_no_daemon_from_its_end(node: Node) -> None:
    path = node.scratch / "file"
    with unanswered_file(path):

        def act() -> None:
            for data in (call("org.nodectl.Hello"), b'{"half', launch(argv=["sleep", "1000"])):
                sock = connect(node)
                file = os.open(path, os.O_RDWR)
                socket.send_fds(sock, [data], [file] * 3)
                sock.detach()

        with as_user(act):
            for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
                assert node.run("true", user=OTHER).returncode == 0
                node.restart(number)
            assert node.run("true", user=OTHER).returncode == 0
    node.nodectl("signal", "-s", "KILL", "1")


@pytest.mark.parametrize("end", ["time limit", "root"])
def test_a_step_whose_streams_hang_is_ended_and_recorded(node: Node, end: str) -> None:
    path = node.scratch / "file"
    with unanswered_file(path):
        limit = {"time_limit": 1} if end == "time limit" else {}

        def act() -> None:
            sock = connect(node)
            file = os.open(path, os.O_RDWR)
            socket.send_fds(sock, [launch(argv=["sleep", "1000"], **limit)], [file] * 3)
            assert "job" in str(framing.receive(sock, framing.Inbox(1 << 20)))
            sock.detach()

        node.stop()
        node.configure(unkillable_step_timeout=1)
        node.start()
        with as_user(act):
            job = node.last_job()
            if end == "root":
                assert node.nodectl("signal", "-s", "KILL", str(job)).returncode == 0
            wait_until(lambda: "exit_status" in node.record(job), "it has ended")
            assert node.record(job)["state"] == ("TIMEOUT" if end == "time limit" else "CANCELLED")


def test_a_file_that_tells_nothing_of_itself_stops_nobody(served: Node) -> None:
    path = served.scratch / "file"
    client = served.popen("sleep", "1000", user=NOBODY)
    wait_until(lambda: any("sleep" in name for _, name in served.processes()), "the step runs")
    where = {"job": served.last_job(), "step": 0, "path": "/tmp/x", "mode": 0o600}
    with unanswered_file(path, attributes=False):

        def act() -> None:
            file = os.open(path, os.O_RDWR)
            sock = connect(served)
            socket.send_fds(sock, [call("org.nodectl.Bcast", parameters=where)], [file, 0])
            sock.detach()

        with as_user(act):
            for _ in range(3):
                assert served.nodectl("ps", user=OTHER).returncode == 0
                assert served.run("true", user=OTHER).returncode == 0
    client.kill()
    client.communicate()


def test_messages_of_millions_of_values_are_read_at_their_users_expense(served: Node) -> None:
    daemon = served.daemon
    assert daemon is not None
    status = Path(f"/proc/{daemon.pid}/status")

    def resident() -> int:
        return int(status.read_text(encoding="ascii").partition("VmRSS:")[2].split()[0])

    def worked() -> float:
        """Seconds of CPU."""
        stat = Path(f"/proc/{daemon.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    before, begun = resident(), worked()
    data = b'{"method":"org.nodectl.Launch","parameters":{"request":[' + b"[]," * 2_600_000 + b"[]]}}\0"

    def act() -> None:
        for _ in range(4):
            with connect(served) as sock:
                sock.sendall(data)
                reply = framing.receive(sock, framing.Inbox(1 << 20))
                assert "values" in str(reply)

    with as_user(act):
        assert served.run("true", user=OTHER).returncode == 0
    assert resident() < before + (32 << 10)
    assert worked() < begun + 0.5  # it took a second for each


def test_what_is_no_launch_is_short(served: Node) -> None:
    with connect(served) as sock:
        sock.sendall(call("org.nodectl.Hello", parameters={"x": "x" * 300_000}))
        assert "longer than 262144 bytes" in str(framing.receive(sock, framing.Inbox(1 << 20)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("name", ["nodectl-listen", "nodectl-session"])
def test_a_listener_or_session_that_is_gone_or_hangs_is_replaced(served: Node, name: str, number: int) -> None:
    assert served.run("true", user=NOBODY).returncode == 0  # there is a session
    for pid in served.service(name):
        os.kill(pid, number)
    for user in (OTHER, NOBODY, None):
        assert served.run("true", user=user).returncode == 0
    wait_until(lambda: len(served.service("nodectl-listen")) == 1, "there is one listener")


def test_a_session_has_no_more_rights_than_its_user(served: Node) -> None:
    for user in (NOBODY, None):  # root's keeps its capabilities unless they are dropped
        assert served.run("true", user=user).returncode == 0
    pid = next(
        pid for pid in served.service("nodectl-session") if os.stat(f"/proc/{pid}/ns").st_uid in (0, NOBODY.pw_uid)
    )
    for pid in served.service("nodectl-session"):
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        facts = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert facts["CapEff"] == facts["CapPrm"] == "0" * 16
        assert facts["NoNewPrivs"] == "1"
        assert facts["Groups"].strip() == ""
        assert len(set(facts["Uid"].split())) == 1
    assert pid


def test_nobody_reads_or_takes_over_a_session(served: Node) -> None:
    """Its own user neither: what is said there to the daemon would not be the session's."""
    assert served.run("true", user=NOBODY).returncode == 0
    sessions = served.service("nodectl-session")

    def act() -> None:
        for pid in sessions:
            for name in ("mem", "fd/3", "environ", "maps"):
                with contextlib.suppress(PermissionError):
                    os.open(f"/proc/{pid}/{name}", os.O_RDWR if name == "mem" else os.O_RDONLY)
                    raise AssertionError(name)

    with as_user(act):
        pass


def greeted(sock: socket.socket) -> str:
    """The answer to a Hello. A connection may be refused, and closed, before it has been sent."""
    with contextlib.suppress(BrokenPipeError):
        sock.sendall(call("org.nodectl.Hello"))
    return str(framing.receive(sock, framing.Inbox(1 << 20)))


def test_connections_over_the_limit_are_refused_and_counted_once(served: Node) -> None:
    most = 128  # max_connections_per_user

    def act() -> None:
        kept: list[socket.socket] = []
        end = time.monotonic() + PATIENCE
        while len(kept) < most:
            sock = connect(served)
            if "version" in greeted(sock):
                kept.append(sock)
            else:  # connections of an earlier test are still being closed
                sock.close()
                assert time.monotonic() < end
        with connect(served) as sock:
            assert "max_connections_per_user" in greeted(sock)
        for sock in kept:
            sock.detach()

    with as_user(act):
        assert served.run("true", user=OTHER).returncode == 0
    assert served.run("true", user=NOBODY).returncode == 0
