"""Clients that vanish, stop, come by the thousand or never read hinder nobody."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from nodectl.model.wire import framing
from rootful.hostile import as_user
from rootful.node import NOBODY, PATIENCE, Node, running, wait_for_answer, wait_until
from rootful.raw import call, connect, launch

MOST = 128  # max_connections_per_user


def test_a_client_that_vanishes_at_any_moment_leaves_nothing(served: Node) -> None:
    for data in (
        b"",
        b'{"met',
        call("org.nodectl.Hello"),
        call("org.nodectl.Hello")[:-1],
        launch(argv=["sleep", "0.2"]),
    ):
        for linger in (False, True):
            with connect(served) as sock:
                if linger:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                sock.sendall(data)


def test_a_client_killed_during_the_step_takes_the_step_along(served: Node) -> None:
    client = served.popen("sleep", "300", user=NOBODY)
    wait_until(lambda: any("sleep" in name for _, name in served.processes()), "the task runs")
    client.kill()
    client.communicate()
    served.assert_clean()
    steps = served.call("List", ended=1)["steps"]
    assert steps[0]["state"] == "CANCELLED"  # type: ignore[index]
    assert "the client that ran it went away" in steps[0]["reason"]  # type: ignore[index]


def test_a_stopped_client_hinders_nobody(served: Node) -> None:
    client = served.popen("-n4", "-l", "sh", "-c", "seq 20000; exit 3", user=NOBODY)
    wait_for_answer(client)  # it cannot have ended: nobody reads what would fill the pipe several times
    client.send_signal(signal.SIGSTOP)
    assert served.run("true", user=NOBODY).returncode == 0
    client.send_signal(signal.SIGCONT)
    output, _ = client.communicate(timeout=PATIENCE)
    assert client.returncode == 3
    assert output.count("\n") == 80_000


def test_thousands_of_half_open_connections_keep_nobody_out(served: Node) -> None:
    pid = os.fork()
    if pid == 0:  # as an ordinary user
        try:
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            held = []
            for _ in range(3000):
                sock = socket.socket(socket.AF_UNIX)
                try:
                    sock.connect(str(served.socket))
                    sock.send(b'{"half')
                except OSError:
                    sock.close()
                    continue
                held.append(sock)
                if len(held) > 500:
                    held.pop(0).close()
            time.sleep(1)
        finally:
            os._exit(0)
    try:
        assert served.run("true").returncode == 0
    finally:
        os.waitpid(pid, 0)
    wait_until(lambda: served.run("true", user=NOBODY).returncode == 0, "the user's connections are free again")


def test_a_listener_without_descriptors_left_waits_for_some(node: Node) -> None:
    listener = node.listener()
    free = min(set(range(64)) - set(map(int, os.listdir(f"/proc/{listener}/fd"))))
    limits = resource.prlimit(listener, resource.RLIMIT_NOFILE)
    resource.prlimit(listener, resource.RLIMIT_NOFILE, (free, limits[1]))
    held = [connect(node) for _ in range(10)]
    begin = time.monotonic()
    wait_until(lambda: "Too many open files" in node.logged(), "it says so")
    before = cpu_ticks(listener)
    time.sleep(1)
    used, told = cpu_ticks(listener) - before, node.logged().count("Too many open files")
    seconds = time.monotonic() - begin
    assert used < 30 * seconds
    assert told < 20 * seconds
    resource.prlimit(listener, resource.RLIMIT_NOFILE, limits)
    for sock in held:
        sock.close()
    assert node.run("echo", "served").stdout == "served\n"


def cpu_ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]))


def test_who_sends_a_call_and_closes_that_way_gets_the_reply_all_the_same(served: Node) -> None:
    client = served.popen("sh", "-c", "echo on; read line; exit 3", user=NOBODY, stdin=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    wait = call("org.nodectl.Wait", parameters={"job": served.last_job(), "step": 0})
    with connect(served) as sock:
        sock.sendall(call("org.nodectl.Hello") + wait)
        sock.shutdown(socket.SHUT_WR)
        inbox = framing.Inbox(1 << 16)
        assert "version" in str(framing.receive(sock, inbox))
        client.communicate("\n", timeout=PATIENCE)
        assert "'exit_status': 3" in str(framing.receive(sock, inbox))
        assert framing.receive(sock, inbox) is None


def test_calls_that_wait_behind_others_fill_no_session(served: Node) -> None:
    """Of 128 connections with one of 8 MiB each they would be all the memory that a session may have."""
    client = served.popen("sh", "-c", "echo on; read line", user=NOBODY, stdin=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    wait = call("org.nodectl.Wait", parameters={"job": served.last_job(), "step": 0})
    big = launch(environment={"A": "x" * (8 << 20)})[: 8 << 20] + b"\0"

    def act() -> None:
        held = [connect(served) for _ in range(MOST - 8)]
        for sock in held:
            with contextlib.suppress(ConnectionError):
                sock.sendall(wait + big)
        told = select.select(held, [], [], PATIENCE)[0]
        assert told
        for sock in told:
            assert "wait for others of yours" in str(framing.receive(sock, framing.Inbox(1 << 20)))

    before = served.service("nodectl-session")
    with as_user(act):
        assert served.run("true", user=NOBODY).returncode == 0
        assert served.service("nodectl-session") == before
        client.communicate("\n", timeout=PATIENCE)
        assert client.returncode == 0


def test_replies_that_nobody_reads_end_the_connection_not_the_daemon(served: Node) -> None:
    with connect(served) as sock:
        sock.setblocking(False)
        data = call("org.varlink.service.GetInterfaceDescription", parameters={"interface": "org.nodectl"}) * 8
        end = time.monotonic() + 5
        sent = 0
        while time.monotonic() < end and sent < 64 << 20:
            try:
                sent += sock.send(data)
            except BlockingIOError:
                time.sleep(0.01)
                if sent > 1 << 20:
                    break
            except (BrokenPipeError, ConnectionResetError):
                break


def test_descriptors_of_calls_whose_client_has_gone_are_counted(served: Node) -> None:
    """A call goes on without its client; so many of them must not fill the daemon."""
    assert served.daemon is not None
    client = served.popen("sh", "-c", "echo on; exec sleep 60", user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    job = served.last_job()
    before = len(os.listdir(f"/proc/{served.daemon.pid}/fd"))
    pid = os.fork()
    if pid == 0:  # as an ordinary user
        try:
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            null = os.open("/dev/null", os.O_RDONLY)
            for _ in range(MOST + 100):
                with connect(served) as sock:
                    wait = call("org.nodectl.Wait", parameters={"job": job, "step": 0})
                    hello = call("org.nodectl.Hello")
                    try:
                        socket.send_fds(sock, [hello], [])
                        if not sock.recv(65536):
                            break
                        socket.send_fds(sock, [wait], [null] * 16)
                        time.sleep(0.002)
                    except ConnectionError:
                        break
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert len(os.listdir(f"/proc/{served.daemon.pid}/fd")) < before + (MOST + 5) * 17
    served.nodectl("signal", "-s", "KILL", str(job))
    client.communicate(timeout=PATIENCE)
    wait_until(lambda: served.run("true", user=NOBODY).returncode == 0, "what was counted is free again")


def test_a_user_with_too_many_connections_is_told_so() -> None:
    with running(max_connections_per_user=1) as node:
        step = node.popen("sh", "-c", "echo on; exec sleep 60", user=NOBODY)
        assert step.stdout is not None
        assert step.stdout.readline() == "on\n"
        done = node.nodectl("ps", user=NOBODY)
        line = "nodectl: error: more connections of yours than max_connections_per_user = 1\n"
        assert (done.returncode, done.stderr) == (1, line)
        assert node.nodectl("ps").returncode == 0  # root is not counted
        node.nodectl("signal", "-s", "KILL", str(node.last_job()))
        step.communicate(timeout=PATIENCE)


def test_a_step_whose_client_knows_its_end_has_ended_also_while_its_runner_waits_for_who_does_not_read() -> None:
    with running(gres=["Name=gpu File=/dev/null"]) as node:
        words = ("--gpus=1", "sh", "-c", "echo on; read line")
        client = node.popen(*words, user=NOBODY, stdin=subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.readline() == "on\n"
        job = str(node.last_job())
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(f"{node.steps}/{job}.0.sock")
            sock.sendall(framing.encode({"method": "org.nodectl.step.Status"}) * 1000)
            _, err = client.communicate("\n", timeout=PATIENCE)
            assert client.returncode == 0, err
            again = node.run("--gpus=1", "true", user=NOBODY)
            assert again.returncode == 0, again.stderr
            for command in ("explain", "signal", "suspend"):
                refused = node.nodectl(command, f"{job}.0", user=NOBODY)
                assert "has ended: COMPLETED" in refused.stderr
