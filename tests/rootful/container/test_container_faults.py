"""job_container/namespace when a call of the kernel's fails, or its process is killed there: everything is undone.

The node's plugin is the built-in one with a saboteur before the calls of `nodectl.kernel._namespace`, the real ones
otherwise.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.contained import Contained, contained, firsts
from rootful.node import NOBODY, Node, wait_until

NAMESPACE = "job_container/namespace"

SABOTEUR = """
import os, signal
from nodectl.kernel import _namespace
from nodectl.plugins.job_container import namespace as real

SCRATCH = {scratch!r}
state = {{"armed": "", "count": 0}}

def order(call):
    '''"N raise" or "N kill" for this call, "" for none.'''
    try:
        with open(f"{{SCRATCH}}/{{call}}") as file:
            return file.read()
    except FileNotFoundError:
        return ""

def guarded(name, function):
    def guard(*arguments):
        if state["armed"]:
            number, what = state["armed"].split()
            state["count"] += 1
            if state["count"] == int(number):
                if what == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(5, "Input/output error")
        return function(*arguments)
    return guard

for name in ("openat2", "unshare", "setns", "clone_mount", "new_mount", "move_mount", "set_mount", "detach",
             "raise_loopback", "set_hostname", "fork_aside"):
    setattr(_namespace, name, guarded(name, getattr(_namespace, name)))

def sabotaged(call, function):
    def sabotage(*arguments):
        state["armed"], state["count"] = order(call), 0
        try:
            return function(*arguments)
        finally:
            if state["armed"]:
                with open(f"{{SCRATCH}}/count", "w") as file:
                    file.write(str(state["count"]))
            state["armed"] = ""
            if order(f"{{call}}.after"):
                raise OSError(5, "afterwards")
    return sabotage

init = real.init
def container_p_create(job_id):
    return sabotaged("create", real.container_p_create)(job_id)
def container_p_add_cont(job_id, cont_id):
    return sabotaged("add_cont", real.container_p_add_cont)(job_id, cont_id)
def container_p_add_pid(job_id, pid, uid):
    return sabotaged("add_pid", real.container_p_add_pid)(job_id, pid, uid)
def container_p_delete(job_id):
    return sabotaged("delete", real.container_p_delete)(job_id)
def container_p_restore():
    return sabotaged("restore", real.container_p_restore)()
def container_p_reconfig():
    raise OSError(5, "reconfig")
"""
KINDS = ("--container-ns=user,pid,net,ipc,uts,time", "--container-ns=pid,net,cgroup")
NEVER = 1_000_000


class Sabotaged:
    """A node with the saboteur."""

    def __init__(self, found: Contained) -> None:
        """Returns when the start's own restore is over: it would take what a test makes for a job's that has gone."""
        self.found = found
        self.node = found.node
        self.orders = found.node.dir / "orders"
        self.orders.mkdir()
        self.node.plugin("saboteur", SABOTEUR.format(scratch=str(self.orders)), "job_container")
        self.node.configure(job_container_type="job_container/saboteur")
        self.order("restore", f"{NEVER} raise")
        self.node.restart()
        wait_until((self.orders / "count").exists, "containers are restored")
        self.order("")

    def order(self, call: str, text: str = "") -> None:
        """The next jobs' `call` is sabotaged; without a text none is."""
        for path in self.orders.iterdir():
            path.unlink()
        if text:
            (self.orders / call).write_text(text, encoding="ascii")

    def calls(self, call: str, words: str) -> int:
        """How many calls of the kernel's a sound one makes."""
        self.order(call, f"{NEVER} raise")
        assert self.node.run(words, "true", user=NOBODY).returncode == 0
        wait_until((self.orders / "count").exists, f"{call} was called")
        self.assert_nothing_left()
        return int((self.orders / "count").read_text(encoding="ascii"))

    def made_fewer(self, number: int) -> bool:
        """Whether the call ended before that one of the kernel's: which are made can depend on the CPU."""
        try:
            return int((self.orders / "count").read_text(encoding="ascii")) < number
        except FileNotFoundError:
            return False  # it was killed

    def assert_nothing_left(self) -> None:
        self.found.assert_gone()
        self.node.assert_clean()
        assert self.node.dir.name not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sabotaged() -> Iterator[Sabotaged]:
    with contained() as found:
        yield Sabotaged(found)
        (found.node.dir / "orders").rename(found.node.dir / "done")


@pytest.mark.parametrize("words", KINDS)
@pytest.mark.parametrize("call", ["create", "add_cont", "add_pid"])
def test_a_call_of_the_kernels_that_fails_refuses_the_job_and_leaves_nothing(
    sabotaged: Sabotaged, call: str, words: str
) -> None:
    for number in range(1, sabotaged.calls(call, words) + 1):
        sabotaged.order(call, f"{number} raise")
        done = sabotaged.node.run(words, "true", user=NOBODY)
        if sabotaged.made_fewer(number):
            continue
        assert done.returncode == 1, (number, done.stderr)
        assert f"container_p_{call}" in done.stderr, number
        assert "Input/output error" in done.stderr, number
        sabotaged.found.assert_gone()
    sabotaged.assert_nothing_left()


@pytest.mark.parametrize("words", KINDS[:1])
@pytest.mark.parametrize("call", ["create", "add_cont", "add_pid"])
def test_a_process_that_is_killed_at_a_call_of_the_kernels_leaves_nothing(
    sabotaged: Sabotaged, call: str, words: str
) -> None:
    for number in range(1, sabotaged.calls(call, words) + 1):
        sabotaged.order(call, f"{number} kill")
        done = sabotaged.node.run(words, "true", user=NOBODY)
        assert done.returncode != 0 or sabotaged.made_fewer(number), number
        sabotaged.found.assert_gone()
    sabotaged.assert_nothing_left()


@pytest.mark.parametrize("call", ["create", "add_cont", "add_pid", "delete"])
def test_what_a_call_did_before_it_failed_is_undone(sabotaged: Sabotaged, call: str) -> None:
    sabotaged.order(f"{call}.after", "fail")
    done = sabotaged.node.run(KINDS[0], "true", user=NOBODY)
    assert done.returncode == (0 if call == "delete" else 1)
    sabotaged.assert_nothing_left()


@pytest.mark.parametrize("what", ["raise", "kill"])
def test_what_a_failing_deletion_leaves_the_next_daemon_removes(what: str) -> None:
    with contained() as found:
        sabotaged = Sabotaged(found)
        for number in range(1, sabotaged.calls("delete", KINDS[0]) + 1):
            sabotaged.order("delete", f"{number} {what}")
            assert found.node.run(KINDS[0], "true", user=NOBODY).returncode == 0
            record = found.node.call("Wait", job=found.node.last_job(), step=0, epilog=True)["record"]
            assert record["state"] == "COMPLETED"  # type: ignore[index]
            sabotaged.order("")
            found.node.restart()
            sabotaged.assert_nothing_left()
            wait_until(lambda: not firsts(found.node), "the first process has ended")


def noted_plugins(node: Node) -> list[str]:
    """Whose containers there may be: each restores what it finds at the start of a daemon."""
    with contextlib.closing(sqlite3.connect(f"{node.values['state_dir']}/history.db")) as history:
        return [plugin for (plugin,) in history.execute("SELECT plugin FROM container")]


def test_a_failing_restore_is_told_of_and_the_node_serves() -> None:
    with contained() as found:
        dead = found.base / "4711"
        dead.mkdir(parents=True)
        sabotaged = Sabotaged(found)
        wait_until(lambda: NAMESPACE not in noted_plugins(found.node), "the type before has restored")
        found.assert_gone()
        for what, words in (
            ("1 raise", "restore containers: plugin job_container/saboteur: container_p_restore: "),
            ("1 kill", "restore the container: its process died, 3 times"),
        ):
            (dead / "dirs/_tmp").mkdir(parents=True)
            sabotaged.order("restore", what)
            found.node.restart()
            wait_until(lambda words=words: words in found.node.logged(), "it is told")
            assert found.node.run("true", user=NOBODY).returncode == 0
            assert dead.exists()
            sabotaged.order("")
            found.node.restart()
            found.assert_gone()


def test_a_failing_reconfig_is_told_of_and_the_node_serves(sabotaged: Sabotaged) -> None:
    sabotaged.order("")
    assert sabotaged.node.daemon is not None
    os.kill(sabotaged.node.daemon.pid, signal.SIGHUP)
    wait_until(lambda: "container_p_reconfig: OSError" in sabotaged.node.logged(), "it is told")
    assert sabotaged.node.run("true", user=NOBODY).returncode == 0
