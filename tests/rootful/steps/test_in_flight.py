"""What a running step keeps of its client's streams is none of what its user may have on the way."""

from __future__ import annotations

import array
import contextlib
import os
import pwd
import resource
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import prctl
import pytest

from nodectl.model.wire import framing
from rootful.hostile import as_user, lingering
from rootful.node import OTHER, Node, wait_until
from rootful.raw import connect, launch

ALONE = pwd.getpwnam("lp")  # the kernel counts per user: with tests of others beside it, each would fail the other
STEPS = 8
MOST = 20_000  # of whom this is asked
AT_ONCE = 250
OF_A_SESSION = 16_384
OF_A_USER = 500  # connections that the session has not taken, at most, and some room
CONNECTIONS = 2000


def in_flight(uid: int = ALONE.pw_uid) -> int:
    """How many descriptors of the user's are in sockets, unread: who may have no more files sends no more."""
    reader, writer = os.pipe()

    def act() -> None:
        prctl.cap_effective.limit()  # else root might always
        ours, theirs = socket.socketpair()
        one = array.array("i", [0])
        low, high = 0, MOST
        while low < high:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_NOFILE, (middle, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            try:
                ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, one)])
                theirs.recv(1)
                high = middle
            except OSError:
                low = middle + 1
        os.write(writer, b"%d" % low)

    with as_user(act, uid, uid):
        os.close(writer)
        found = int(os.read(reader, 20))
    os.close(reader)
    return found


@pytest.mark.parametrize("ntasks", [1, 2])
def test_running_steps_leave_nothing_in_flight(served: Node, ntasks: int) -> None:
    before = in_flight()
    clients = [served.popen(f"-n{ntasks}", "sleep", "1000", user=ALONE) for _ in range(STEPS)]
    try:
        wait_until(lambda: sum("sleep" in name for _, name in served.processes()) == STEPS * ntasks, "the steps run")
        wait_until(lambda: in_flight() < before + STEPS, "the streams have been taken")
    finally:
        for client in clients:
            client.kill()
            client.communicate()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("how", [{"stdin": "0"}, {"label": False}, {"label": True}], ids=["tasks", "in", "all"])
def test_streams_that_several_take_are_gone_with_their_step_however_long_their_close_takes(
    served: Node, how: Mapping[str, object], killed: bool
) -> None:
    """By the tasks alone, with a relay for their input, with relays for all."""
    before, go = in_flight(), served.scratch / f"go-{len(str(how))}-{killed}"
    with lingering() as make:

        def act() -> None:
            fds = [make() for _ in range(3)]
            with connect(served) as sock:
                program = f"while ! [ -e {go} ]; do sleep 0.01; done"
                socket.send_fds(sock, [launch(argv=["sh", "-c", program], ntasks=2, **how)], fds)
                inbox = framing.Inbox(1 << 20)
                assert "job" in str(framing.receive(sock, inbox))
                kept.extend(inbox.take_descriptors())
            for fd in fds:
                os.dup2(null, fd)  # the last copies are the step's

        kept: list[int] = []
        null = os.open("/dev/null", os.O_RDWR)
        with as_user(act, ALONE.pw_uid, ALONE.pw_gid):
            wait_until(lambda: sum(name == "sh" for _, name in served.processes()) == 2, "the tasks run")
            if killed:
                steps = served.call("List")["steps"]
                os.kill(int(steps[0]["pid"]), signal.SIGKILL)  # type: ignore[index]
            else:
                go.touch()
            assert served.run("true", user=OTHER).returncode == 0
            served.assert_clean()
            wait_until(lambda: in_flight() <= before, "nothing is in flight any more")
        os.close(null)


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= MOST - 253, reason="nobody may have as many here")
def test_who_has_too_much_on_the_way_for_the_ends_of_a_step_is_told_so(served: Node) -> None:
    def act() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))
        kept = socket.socketpair()
        for _ in range(OF_A_SESSION // 253 + 2):
            socket.send_fds(kept[0], [b"x"], [0] * 253)
        with connect(served) as sock:
            socket.send_fds(sock, [launch(argv=["sleep", "1000"])], [0, 1, 2])
            assert "on their way" in str(framing.receive(sock, framing.Inbox(1 << 20)))

    with as_user(act, ALONE.pw_uid, ALONE.pw_gid):
        served.assert_clean()


@contextlib.contextmanager
def much_in_flight(count: int) -> Iterator[None]:
    """So many descriptors that root has sent and nobody reads."""
    with contextlib.ExitStack() as stack:
        for _ in range(0, count, AT_ONCE):
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            stack.enter_context(theirs)
            socket.send_fds(ours, [b"x"], [0] * AT_ONCE)
        yield


def test_roots_steps_have_their_answers_however_much_of_roots_is_in_flight(served: Node) -> None:
    """What the listener gives to the session of a user who crowds it is in flight as root's, and root's session may be
    refused to send: its client was told that the service had gone, and its step ended with that.
    """
    with much_in_flight(OF_A_SESSION + AT_ONCE):
        done = served.run("echo", "said")
    assert (done.returncode, done.stdout) == (0, "said\n"), done.stderr


def test_connections_that_a_session_does_not_take_are_no_more_than_some(served: Node) -> None:
    """Whatever root sends without capabilities would not go, in programs that know nothing of us neither."""
    assert served.run("true", user=ALONE).returncode == 0
    before = in_flight(0)
    for pid in served.service("nodectl-session"):
        if f"Uid:\t{ALONE.pw_uid}\t" in Path(f"/proc/{pid}/status").read_text(encoding="ascii"):
            os.kill(pid, signal.SIGSTOP)

    def act() -> None:
        for _ in range(CONNECTIONS):
            framing.connect(str(served.socket)).close()  # it waits for room to connect

    with as_user(act, ALONE.pw_uid, ALONE.pw_gid):
        assert in_flight(0) < before + OF_A_USER
        assert served.run("true").returncode == 0
    wait_until(lambda: served.run("true", user=ALONE).returncode == 0, "another session serves the user")
