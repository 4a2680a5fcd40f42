"""A process of the service that has used up its descriptors: whom it cannot serve is told, and it lives."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from descriptors import no_number_left
from rootful.node import NOBODY, OTHER, Node, running, wait_until

FOREVER = "exec sleep 1000"


@pytest.fixture
def node() -> Iterator[Node]:
    with running() as started:
        yield started


def test_a_look_up_that_fails_for_want_of_descriptors_does_not_say_that_the_user_is_unknown(node: Node) -> None:
    assert node.nodectl("ps", user=OTHER).returncode == 0  # whom the daemon has not looked up, and has a process for
    assert node.daemon is not None
    with no_number_left(node.daemon.pid):
        refused = node.run("true", user=OTHER)
    assert refused.returncode == 1
    assert "no user" not in refused.stderr
    assert "Too many open files" in refused.stderr


def test_a_daemon_that_may_have_too_few_says_so_at_its_start() -> None:
    node = Node()
    try:
        done = subprocess.run(
            ["prlimit", "--nofile=64:64", *node.command("daemon")], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, env=node.environment(),
        )  # fmt: skip
    finally:
        node.close()
    assert done.returncode == 1
    assert "RLIMIT_NOFILE is 64, and 256 are needed: ulimit -n, or LimitNOFILE of the unit" in done.stderr


def test_a_daemon_raises_a_soft_limit_that_is_too_low(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    command = node.command
    limited = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard})); "
    limited += "os.execv(sys.argv[1], sys.argv[1:])"
    monkeypatch.setattr(node, "command", lambda *words: [sys.executable, "-c", limited, *command(*words)])
    try:
        node.start()
        monkeypatch.undo()
        assert node.run("true", user=NOBODY).returncode == 0
    finally:
        node.close()


def test_a_daemon_without_a_descriptor_refuses_in_words_and_serves_again_when_it_has_some(node: Node) -> None:
    assert node.run("true", user=NOBODY).returncode == 0
    assert node.daemon is not None
    with no_number_left(node.daemon.pid):
        for user in (OTHER, NOBODY):  # the first has no session process yet
            refused = node.run("true", user=user)
            assert refused.returncode == 1
            assert "error: " in refused.stderr
        wait_until(lambda: "Too many open files" in node.logged(), "the log says why")
        assert node.daemon.poll() is None
    for user in (OTHER, NOBODY):
        assert node.run("true", user=user).returncode == 0


@pytest.mark.parametrize("more", range(6))
def test_a_visit_is_refused_in_words_by_a_daemon_without_a_descriptor(node: Node, more: int) -> None:
    """Like a launch, and with no path of root's; so are other calls about a step."""
    job = node.nodectl("submit", "--parsable", "-o/dev/null", "--wrap", FOREVER, user=NOBODY).stdout.strip()
    wait_until(lambda: node.nodectl("enter", job, "true", user=NOBODY).returncode == 0, "the job runs")
    assert node.daemon is not None
    with no_number_left(node.daemon.pid, but=more):
        entered = node.nodectl("enter", job, "true", user=NOBODY)
        signalled = node.nodectl("signal", "-s", "CONT", job, user=NOBODY)
    for done in (entered, signalled):
        assert "OSError" not in done.stderr
        assert str(node.dir) not in done.stderr
        assert done.returncode == 0 or done.stderr.endswith(": Too many open files\n")
    assert not entered.returncode or "enter: " in entered.stderr
    assert entered.returncode == 1 or more
    assert node.nodectl("cancel", job, user=NOBODY).returncode == 0


@pytest.mark.parametrize("more", range(10))
def test_a_forkserver_without_a_descriptor_refuses_a_step_in_words_and_goes_on(node: Node, more: int) -> None:
    """Whatever it lacks one for: some descriptors of the order come, or all of them and no other can be opened."""
    assert node.run("true", user=NOBODY).returncode == 0
    (forkserver,) = node.service("nodectl-fork")
    with no_number_left(forkserver, but=more):
        refused = node.run("true", user=OTHER)
    if refused.returncode:
        assert "start a step runner: " in refused.stderr
        assert "Too many open files" in refused.stderr
        assert "Traceback" not in node.logged()
    for user in (OTHER, NOBODY):
        assert node.run("true", user=user).returncode == 0
    assert node.service("nodectl-fork") == [forkserver]


def test_the_call_and_the_errno_are_named_where_the_descriptors_of_an_order_do_not_come(node: Node) -> None:
    (forkserver,) = node.service("nodectl-fork")
    with no_number_left(forkserver):
        refused = node.run("true", user=NOBODY)
        assert node.run("true", user=NOBODY).returncode == 1, "it answers the next order"
    assert "receive the descriptors of the order of step " in refused.stderr
    assert ": recvmsg: Too many open files" in refused.stderr
    assert "recvmsg: Too many open files" in node.logged()
