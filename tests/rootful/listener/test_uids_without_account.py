"""Uids that no account has, as newuidmap gives them to a user by the thousands, share a few session processes."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodectl.kernel.closing import close_in_time
from nodectl.model.wire import framing
from nodectl.service.listener.main import MOST_SHARED_SESSIONS
from nodectl.service.listener.refusals import MOST_CHILDREN
from rootful.hostile import lingering
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until
from rootful.raw import call, connect

UIDS = 4 * MOST_SHARED_SESSIONS
LEAST = 1_879_048_192  # far above what accounts and systemd use


@pytest.fixture
def uids() -> list[int]:
    found = range(LEAST, LEAST + UIDS)
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    assert not taken.intersection(found)
    return list(found)


def connected(node: Node, uid: int) -> socket.socket:
    """A connection of the uid's."""
    os.seteuid(uid)
    try:
        return connect(node)
    finally:
        os.seteuid(0)


def sessions(node: Node, uids: list[int]) -> list[int]:
    """The pids of the session processes of these uids."""
    found = []
    for pid in node.service("nodectl-session"):
        with contextlib.suppress(FileNotFoundError):
            text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
            if int(text.partition("\nUid:\t")[2].split()[0]) in uids:
                found.append(pid)
    return found


def ended(sock: socket.socket) -> bool:
    """True when the service has closed the connection."""
    sock.settimeout(PATIENCE)
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(1) == b""
    return True


def test_uids_without_account_share_few_session_processes_and_users_are_served(node: Node, uids: list[int]) -> None:
    kept = [connected(node, uid) for uid in uids]
    try:
        assert all(ended(sock) for sock in kept[MOST_SHARED_SESSIONS:])
        wait_until(
            lambda: len(sessions(node, uids)) == MOST_SHARED_SESSIONS, "as many as may be have become their user"
        )
        for user in (NOBODY, OTHER, None):  # NOBODY and OTHER for the first time
            assert node.run("true", user=user).returncode == 0
    finally:
        for sock in kept:
            sock.close()
    for pid in sessions(node, uids):  # else they wait for a minute for more connections
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not sessions(node, uids), "the shared session processes have ended")
    with connected(node, uids[-1]) as sock:
        sock.settimeout(PATIENCE)
        sock.sendall(call("org.nodectl.Hello"))
        assert b"parameters" in sock.recv(1 << 16)


def test_what_is_kept_for_one_uid_without_account_is_a_share_of_what_is_kept_for_a_user(
    node: Node, uids: list[int]
) -> None:
    """Two messages of five million bytes that never end; a user may have twelve of these."""
    half = b'{"' + b"x" * 5_000_000
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        for uid in (uids[0], uids[0], NOBODY.pw_uid, NOBODY.pw_uid):
            sock = stack.enter_context(connected(node, uid))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(half)
            poll.register(stack.enter_context(sock.dup()) if uid == uids[0] else sock, select.POLLIN)
        (fd, _), *_ = poll.poll(PATIENCE * 1000)
        assert b"bytes of yours are not whole yet" in os.read(fd, 1 << 16)
        assert node.run("true", user=NOBODY).returncode == 0


def closers(node: Node, listener: int) -> int:
    """How many children of the listener are no session processes. One may change its name meanwhile."""
    return len({*node.service("nodectl-listen"), *node.service("nodectl-refuse")} - {listener})


def test_refused_connections_with_descriptors_that_never_close_cost_few_processes(node: Node, uids: list[int]) -> None:
    listener = node.listener()
    kept = [connected(node, uid) for uid in uids[:MOST_SHARED_SESSIONS]]
    wait_until(lambda: len(sessions(node, uids)) == MOST_SHARED_SESSIONS, "as many as may be have become their user")

    others = uids[MOST_SHARED_SESSIONS:]

    def act() -> None:
        with lingering() as make:
            for uid in others:
                sock = connected(node, uid)
                mine = [make()]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    socket.send_fds(sock, [b'{"half'], mine)
                close_in_time(mine)
                assert ended(sock)
                os.write(told, b"+")
                assert os.read(go, 1)
                sock.detach()
            os.write(told, b"+")
            signal.pause()

    reader, told = os.pipe()
    go, writer = os.pipe()
    with hostile_process(act):
        os.close(told)
        os.close(go)
        for _ in others:
            assert os.read(reader, 1) == b"+", "the connection was not refused"
            node.call("Hello")  # comes after them
            assert closers(node, listener) <= MOST_CHILDREN
            os.write(writer, b"+")
        assert os.read(reader, 1) == b"+"
        assert node.run("true", user=NOBODY).returncode == 0
        assert listener in node.service("nodectl-listen")
        os.close(writer)
        os.close(reader)
    for sock in kept:
        sock.close()
    wait_until(lambda: not closers(node, listener), "the children have ended")


@contextlib.contextmanager
def hostile_process(act: Callable[[], None]) -> Iterator[None]:
    """A process of root's that does this until it is killed."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_uids_without_account_are_given_no_numbers(node: Node, uids: list[int]) -> None:
    """What is kept for each would be kept for thousands."""
    with connected(node, uids[0]) as sock:
        sock.sendall(call("org.nodectl.Reserve"))
        reply = framing.receive(sock, framing.Inbox(1 << 20))
    assert reply is not None
    assert reply["error"] == "org.nodectl.InvalidRequest"
    assert f"no user {uids[0]}" in str(reply["parameters"])
    assert "job" in node.call("Reserve")


@pytest.mark.parametrize("count", [300, 4000, 60_000])
def test_a_caller_in_many_groups_is_served_and_so_are_others(node: Node, count: int) -> None:
    """As a process may be to which newgidmap gave a range of /etc/subgid, and the user of a large directory."""
    listener, own = node.listener(), os.getgroups()
    os.setgroups(range(LEAST, LEAST + count))
    try:
        sock = connected(node, NOBODY.pw_uid)
    finally:
        os.setgroups(own)
    with sock:
        sock.sendall(call("org.nodectl.Hello"))
        assert b"parameters" in sock.recv(1 << 16)
    assert node.listener() == listener
