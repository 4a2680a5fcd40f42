"""Numbers of processes are given anew: what has the number of one that has gone is never signalled in its place."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from nodectl.kernel import signals
from nodectl.launch.cgroup import tree
from nodectl.plugins.proctrack import linuxproc, pgid
from rootful.node import NOBODY, PATIENCE, Node, wait_until
from rootful.relays import parent_of, relay_of

_CLONE3 = 435
_FIELDS = "<8Q"  # flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; then set_tid and its size


@contextlib.contextmanager
def bystander(number: int = 0, *, session: bool = True) -> Iterator[int]:
    """A process of root's that has nothing to do with any step, under this number if one is given: clone3(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = (ctypes.c_int * 1)(number)
    more = struct.pack("<2Q", ctypes.addressof(wanted) if number else 0, 1 if number else 0)
    arguments = struct.pack(_FIELDS, 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0) + more
    pid = libc.syscall(_CLONE3, arguments, len(arguments))
    if pid == 0:
        try:
            if session:
                os.setsid()
            os.execv("/bin/sleep", ["sleep", "600"])
        finally:
            os._exit(1)
    assert pid > 0, os.strerror(ctypes.get_errno())
    try:
        wait_until(lambda: is_asleep(pid), "it is what it will be")
        yield pid
        assert is_asleep(pid), "it was signalled"
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def is_asleep(pid: int) -> bool:
    """What is sent a signal that ends it wakes up at once, though it may not have ended yet."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").startswith(f"{pid} (sleep) S ")


def test_the_number_of_a_relay_that_ended_early_is_not_killed(node: Node) -> None:
    """With its stdin at an end the relay went at once; at the step's end root killed whoever had its number."""
    client = node.popen("-n2", "sh", "-c", "echo on; exec sleep 600", user=NOBODY, stdin=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdin is not None
    assert [client.stdout.readline() for _ in range(2)] == ["on\n"] * 2
    relay = relay_of(node)
    client.stdin.close()
    wait_until(lambda: not os.path.exists(f"/proc/{relay}"), "the relay has ended and is collected")
    with bystander(relay) as pid:
        assert pid == relay
        node.nodectl("signal", "-s", "KILL", str(node.last_job()))
        client.stdout.read()
        client.wait(PATIENCE)
        node.assert_clean()


def test_a_group_that_has_become_anothers_is_none_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """proctrack/pgid sent SIGKILL to whatever group had the number of its own."""
    script = "sleep 600 & echo; wait"
    leader = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    assert leader.stdout is not None
    assert leader.stdout.readline() == b"\n"
    (member,) = map(int, Path(f"/proc/{leader.pid}/task/{leader.pid}/children").read_text(encoding="ascii").split())
    try:
        monkeypatch.setattr(pgid._State, "group", leader.pid)
        assert os.getpgid(member) == leader.pid
        assert pgid.proctrack_p_get_pids(leader.pid) == []
        assert not pgid.proctrack_p_has_pid(leader.pid, member)
        pgid.proctrack_p_signal(leader.pid, signals.KILL)
        pgid.proctrack_p_wait(leader.pid)
        assert os.getpgid(member) == leader.pid
        assert leader.poll() is None
    finally:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.communicate()


@pytest.mark.parametrize("tracker", [pgid, linuxproc])
def test_a_listed_number_is_looked_at_again(tracker: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the list and the signal the process may go, and its number be another's."""
    with bystander() as pid:
        lists = iter([[pid]])
        monkeypatch.setattr(tracker, "proctrack_p_get_pids", lambda _: next(lists, []))
        tracker.proctrack_p_signal(1 << 22, signals.KILL)


def test_a_process_outside_of_a_cgroup_is_not_killed_with_it(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    """Where there is no cgroup.kill, a listed number may be another's by the time that it is used."""
    group = tree.Group(f"{node.base}/some").make()
    with bystander() as pid:
        monkeypatch.setattr(tree.Group, "pids", lambda _: [pid])
        group._kill_each()
    assert group.remove()


def test_who_is_in_a_cgroup_is_asked_of_the_process(node: Node) -> None:
    group = tree.Group(f"{node.base}/some").make()
    with bystander() as pid:
        assert not group.holds(pid)
        group.add(pid)
        assert group.holds(pid)
        tree.Group(node.mount).add(pid)
        assert not group.holds(pid)
    assert group.remove()


def test_who_is_no_child_gets_no_signal() -> None:
    with bystander() as pid:
        assert parent_of(pid) == os.getpid()
        assert signals.send_child(pid, 0)
        child = os.fork()
        if child == 0:
            os._exit(signals.send_child(pid, signals.KILL) or signals.send_group_of_child(pid, signals.KILL))
        assert os.waitpid(child, 0)[1] == 0
        assert not signals.send_child(child, signals.KILL)
