"""Step runners that serve several steps: whom they serve, what they keep of a step, how they end."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.launch.forkserver import spare
from nodectl.launch.stepd.orders import WAITING
from nodectl.model.wire import framing
from rootful.fuse import unanswered_file
from rootful.hostile import as_user
from rootful.node import NOBODY, OTHER, Node, running, wait_for_answer, wait_until
from rootful.raw import connect, launch

STEPS = 30
MANY = 33
TOO_FEW_FILES = 4
SESSION_KEYRING = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
add_key, keyctl = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
SEARCH, SESSION = 10, -3
if sys.argv[1] == "add":
    print(libc.syscall(add_key, b"user", b"mine", b"x", 1, SESSION) > 0)
else:
    print(libc.syscall(keyctl, SEARCH, SESSION, b"user", b"mine", 0) > 0)
"""


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    with running() as node:
        yield node


def among_runners(node: Node) -> list[str]:
    """Who is in their cgroup."""
    return Path(f"{node.base}/runners/cgroup.procs").read_text(encoding="ascii").split()


def waiting(node: Node) -> list[int]:
    """The runners of the node that wait for a step."""
    found = []
    for pid in among_runners(node):
        try:
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == WAITING:
                found.append(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def runner_of(node: Node, *words: str, user: object = NOBODY, **how: object) -> int:
    """Runs a step to its end, and to that of its runner's work for it. The pid of the runner."""
    done = node.run(*words, user=user, **how)
    assert done.returncode == 0, done.stderr
    node.assert_clean()
    (pid,) = {line["pid"] for line in node.trace(node.last_job()) if line["process"] == "stepd"}
    return int(str(pid))


def memory_holds(pid: int, what: bytes) -> bool:
    """Whether the bytes are anywhere in what a process may write to."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
            span, access = line.split()[:2]
            if not access.startswith("rw"):
                continue
            start, end = (int(word, 16) for word in span.split("-"))
            memory.seek(start)
            try:
                is_there = what in memory.read(end - start)
            except OSError:  # the process has given the memory back since it was listed
                continue
            if is_there:
                return True
    return False


@pytest.mark.parametrize("tasks", ["-n1", "-n7"])
def test_a_users_next_step_has_the_same_runner(shared_node: Node, tasks: str) -> None:
    first = runner_of(shared_node, tasks, "true")
    assert first in waiting(shared_node)
    assert runner_of(shared_node, tasks, "true") == first


def test_no_runner_serves_two_users(shared_node: Node) -> None:
    assert runner_of(shared_node, "true", user=NOBODY) != runner_of(shared_node, "true", user=OTHER)


def test_a_users_words_are_not_in_the_memory_of_the_forkserver_or_of_another_ones_runner(shared_node: Node) -> None:
    """The forkserver is what all others are forked from."""
    argument, variable, entry = "argument-of-nobody-only", "variable-of-nobody-only", "entry-of-nobody-only"
    words = [argument.encode(), variable.encode(), entry.encode()]
    script = ("sh", "-c", "echo began; read line; echo $line", argument)
    client = shared_node.popen("--export=ALL", *script, user=NOBODY, stdin=-1, env={"SECRET": variable})
    assert client.stdout is not None
    assert client.stdout.readline() == "began\n"
    (own,) = [pid for pid, name in shared_node.processes() if name.startswith("stepd")]
    (forkserver,) = shared_node.service("nodectl-fork")
    assert all(memory_holds(own, word) for word in words[:2]), "the test looks where words are"
    assert memory_holds(forkserver, b"nodectl-fork")
    assert not any(memory_holds(forkserver, word) for word in words)
    assert client.communicate(f"{entry}\n", timeout=60)[0] == f"{entry}\n"
    shared_node.assert_clean()
    others = runner_of(shared_node, "true", user=OTHER)
    assert others in waiting(shared_node)
    assert memory_holds(others, b"nodectl")
    for pid in (others, forkserver):
        assert not any(memory_holds(pid, word) for word in words)
    assert own != others


@pytest.mark.parametrize("tasks", ["-n1", "-n7"])
def test_a_runner_that_waits_has_nothing_open_of_its_last_step(shared_node: Node, tasks: str) -> None:
    pid = runner_of(shared_node, tasks, "echo", "hello")
    targets = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2}
    sockets = {target for target in targets if target.startswith("socket:")}
    assert len(sockets) == 1, targets
    assert targets - sockets <= {shared_node.mount}, targets


@pytest.mark.parametrize("tasks", ["-n1", "-n7"])
def test_a_runner_is_no_larger_after_many_steps(shared_node: Node, tasks: str) -> None:
    def size() -> tuple[int, int]:
        pid = runner_of(shared_node, tasks, "true")
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").count("\n")
        return pid, maps

    size()
    pid, maps = size()
    for _ in range(STEPS):
        shared_node.run(tasks, "true", user=NOBODY)
    assert size() == (pid, maps)


def test_a_session_keyring_is_one_steps(shared_node: Node) -> None:
    script = shared_node.scratch / "key.py"
    script.write_text(SESSION_KEYRING, encoding="utf-8")
    shared_node.assert_clean()
    added = shared_node.run("--secure=none", "/usr/bin/python3", str(script), "add", user=NOBODY)
    if added.stdout != "True\n":
        pytest.skip("the kernel has no keys for users here")
    shared_node.assert_clean()
    found = shared_node.run("--secure=none", "/usr/bin/python3", str(script), "search", user=NOBODY)
    assert found.stdout == "False\n", found


def test_what_a_task_sets_for_its_session_is_its_steps(shared_node: Node) -> None:
    own = Path("/proc/self/autogroup")
    if not own.exists():
        pytest.skip("the kernel gives sessions no share of their own")
    lowered = shared_node.run("sh", "-c", "echo 15 > /proc/self/autogroup; cat /proc/self/autogroup", user=NOBODY)
    assert lowered.stdout.endswith("nice 15\n"), lowered
    shared_node.assert_clean()
    assert shared_node.run("cat", "/proc/self/autogroup", user=NOBODY).stdout.endswith("nice 0\n")


def test_a_runner_that_is_killed_while_it_waits_costs_nothing(shared_node: Node) -> None:
    pid = runner_of(shared_node, "true")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in waiting(shared_node), "it has gone")
    done = shared_node.run("echo", "again", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "again\n"), done.stderr


def test_an_order_that_a_runner_has_not_taken_when_it_is_killed_is_given_to_another() -> None:
    with running() as node:
        pid = runner_of(node, "true")
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) == "T", "it stands still")
        client = node.popen("sh", "-c", "read line; echo $line", user=NOBODY, stdin=-1)
        wait_until(lambda: served_by(node) == [pid], "the order lies with it")
        os.kill(pid, signal.SIGKILL)
        out, said = client.communicate("here\n", timeout=60)
        assert (client.returncode, out) == (0, "here\n"), said
        node.assert_clean()
        job = node.last_job()
        assert node.record(job)["state"] == "COMPLETED"
        assert pid not in {line["pid"] for line in node.trace(job)}
        assert runner_of(node, "true") != pid


def test_an_order_that_a_stopped_runner_has_not_taken_is_its_own() -> None:
    """Nobody waits for it, and nobody else is given the order as long as it lives."""
    with running() as node:
        pid = runner_of(node, "true")
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) == "T", "it stands still")
        client = node.popen("echo", "here", user=NOBODY)
        wait_until(lambda: served_by(node) == [pid], "the order lies with it")
        assert node.run("true", user=OTHER).returncode == 0
        os.kill(pid, signal.SIGCONT)
        assert client.communicate(timeout=60) == ("here\n", "")
        assert client.returncode == 0


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2][0]


def served_by(node: Node) -> list[object]:
    """The step runners of the steps that run, as far as the daemon knows them."""
    steps: Any = node.call("List", ended=0)["steps"]
    return [step["pid"] for step in steps if step["state"] == "RUNNING"]


def test_the_step_after_a_reload_or_a_restart_has_what_was_read_then() -> None:
    """Also where a runner waits for it that was there before."""
    with running() as node:
        kept = runner_of(node, "true")
        assert node.daemon is not None
        node.configure(container_base_path=str(node.dir / "elsewhere"), task_hard_limits=["NOFILE=77"])
        node.daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: configured(node)["container_base_path"] == str(node.dir / "elsewhere"), "it was read")
        assert runner_of(node, "true") == kept
        assert node.run("sh", "-c", "ulimit -Hn", user=NOBODY).stdout != "77\n", "only containers are made anew"
        node.restart()
        assert node.run("sh", "-c", "ulimit -Hn", user=NOBODY).stdout == "77\n"
        assert runner_of(node, "true") != kept


def configured(node: Node) -> Mapping[str, object]:
    found: Any = node.call("Config")["config"]
    return found  # type: ignore[no-any-return]


def test_a_runner_that_is_killed_while_it_serves_is_told_of_as_any(shared_node: Node) -> None:
    runner_of(shared_node, "true")
    client = shared_node.popen("sleep", "1000", user=NOBODY)
    wait_until(lambda: any(name.startswith("sleep") for _, name in shared_node.processes()), "its task runs")
    (stepd,) = [pid for pid, name in shared_node.processes() if name.startswith("stepd")]
    os.kill(stepd, signal.SIGKILL)
    _, said = client.communicate(timeout=60)
    assert "the step runner died" in said
    shared_node.assert_clean()


def test_a_runner_whose_tasks_left_a_clients_streams_untaken_serves_nobody_any_more() -> None:
    """What is left in the socket is closed by whoever ends: that may take as long as its maker likes."""
    with running(task_hard_limits=[f"NOFILE={TOO_FEW_FILES}"]) as node:
        runners = []
        for _ in range(2):
            done = node.run("-n2", "true", user=NOBODY)
            assert "take the streams of the client" in done.stderr, done
            node.assert_clean()
            runners += [line["pid"] for line in node.trace(node.last_job()) if line["process"] == "stepd"][:1]
        assert runners[0] != runners[1]
        assert not set(runners) & set(waiting(node))


@pytest.mark.parametrize("end", ["time limit", "root"])
def test_a_runner_whose_tasks_hang_with_their_streams_serves_nobody_any_more(end: str) -> None:
    with running(unkillable_step_timeout=1, kill_wait=1) as node, unanswered_file(path := node.scratch / "file"):
        kept = runner_of(node, "-n2", "true")
        limit = {"time_limit": 1} if end == "time limit" else {}

        def act() -> None:
            sock = connect(node)
            file = os.open(path, os.O_RDWR)
            request = launch(argv=["sleep", "1000"], ntasks=2, stdin="none", **limit)
            socket.send_fds(sock, [request], [file] * 3)
            assert "job" in str(framing.receive(sock, framing.Inbox(1 << 20)))
            sock.detach()

        with as_user(act):
            job = node.last_job()
            if end == "root":
                assert node.nodectl("signal", "-s", "KILL", str(job)).returncode == 0
            wait_until(lambda: "exit_status" in node.record(job), "it has ended")
            assert node.record(job)["state"] == ("TIMEOUT" if end == "time limit" else "CANCELLED")
            assert kept in {line["pid"] for line in node.trace(job)}, "the test is about a runner that was kept"
            assert kept not in waiting(node)


def test_a_step_with_a_plugin_a_relay_or_many_tasks_gets_a_runner_of_its_own(shared_node: Node) -> None:
    kept = runner_of(shared_node, "true")
    assert runner_of(shared_node, "-O", f"-n{MANY}", "true") != kept
    assert runner_of(shared_node, "-n2", "true", stdin="copied to both") != kept
    shared_node.plugin("quiet", "def slurm_spank_init(*_):\n    return 0\n")
    shared_node.plugstack(f"required {shared_node.plugins}/spank/quiet.py\n")
    try:
        stacked = runner_of(shared_node, "true")
    finally:
        shared_node.plugstack("")
    assert stacked != kept
    assert not Path(f"/proc/{stacked}").exists()


def test_runners_end_with_their_forkserver() -> None:
    with running() as node:
        pid = runner_of(node, "true")
        client = node.popen("sh", "-c", "echo began; read line; echo $line", user=NOBODY, stdin=-1)
        assert client.stdout is not None
        assert client.stdin is not None
        assert client.stdout.readline() == "began\n"
        wait_for_answer(client)
        (serves,) = [pid for pid, name in node.processes() if name.startswith("stepd")]
        node.restart(signal.SIGKILL)
        wait_until(lambda: not waiting(node), "those that wait have ended")
        client.stdin.write("later\n")
        client.stdin.flush()
        assert client.communicate(timeout=60)[0] == "later\n"
        assert client.returncode == 0
        wait_until(lambda: not Path(f"/proc/{serves}").exists(), "it has ended behind its step")
        assert pid == serves, "the test is about a runner that is kept"
        assert runner_of(node, "true") != pid


def test_a_daemon_that_ends_leaves_no_cgroup_of_runners() -> None:
    with running() as node:
        runner_of(node, "true")
        assert waiting(node)
        node.stop()
        assert not Path(node.base).exists()


def test_no_runner_is_kept_where_there_are_to_be_none() -> None:
    with running(warm_runners=0) as node:
        assert runner_of(node, "true") != runner_of(node, "true")
        assert not Path(f"{node.base}/runners").exists()


@pytest.mark.parametrize("tracker", ["pgid", "linuxproc"])
def test_nothing_that_another_tracker_starts_is_among_the_runners(tracker: str) -> None:
    with running(proctrack_type=f"proctrack/{tracker}", task_plugin="task/affinity,task/cgroup") as node:
        assert runner_of(node, "true") != runner_of(node, "true")
        names = [Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") for pid in among_runners(node)]
        assert set(names) <= {f"{spare.WAITING}\n"}


def test_a_sites_plugin_is_called_in_a_process_for_its_step_alone() -> None:
    node = Node(task_plugin="task/affinity,task/site")
    node.plugin("site", "def task_p_pre_setuid(step):\n    return 0\n", "task")
    try:
        node.start()
        assert runner_of(node, "true") != runner_of(node, "true")
    finally:
        node.close()
