"""What one user may have of a node: more is refused with the key that says so, and others notice nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel import _kernel
from nodectl.launch.task.rlimits import CAP_SYS_RESOURCE
from nodectl.model.wire import framing
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_for_answer, wait_until
from rootful.raw import connect as raw_connect
from rootful.raw import exchange, launch

LONELY = pwd.getpwnam("games")  # an account of which no other test has processes
LIMITS = ("Max core file size", "Max open files", "Max locked memory")
ON = "echo on; exec sleep 1000"


@pytest.fixture
def node() -> Iterator[Node]:
    with running(max_step_bytes_per_user=1 << 20, max_tasks_per_user=4) as started:
        yield started


@contextlib.contextmanager
def held(node: Node, *words: str, user: pwd.struct_passwd = NOBODY) -> Iterator[subprocess.Popen[str]]:
    """A step of the user's that runs."""
    with node.popen(*words, user=user) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "on\n"
            wait_for_answer(client)
            yield client
        finally:
            client.terminate()


@contextlib.contextmanager
def alone(user: pwd.struct_passwd) -> Iterator[None]:
    """Another run of this test on the machine waits, and so do we until the account has no process."""
    with Path(f"/run/nodectl-test-{user.pw_name}.lock").open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        wait_until(lambda: user.pw_uid not in owners(), "the account has no process")
        yield


def owners() -> set[int]:
    """Whose there are processes."""
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found.add(os.stat(f"/proc/{pid}").st_uid)
    return found


def large(size: int) -> list[str]:
    """A program with arguments of so many bytes."""
    return ["sh", "-c", ON, "sh", *["x" * 100_000] * (size // 100_000)]


def test_files_of_one_users_steps_have_a_bound_that_a_restart_does_not_lift(node: Node) -> None:
    with held(node, *large(600_000)):
        for restart in (False, True):
            if restart:
                node.restart(signal.SIGKILL)
            refused = node.run(*large(600_000), user=NOBODY)
            assert refused.returncode == 1
            assert "max_step_bytes_per_user = 1048576" in refused.stderr
            assert [path.name for path in node.steps.glob("*.json")] == ["1.0.json"]
        assert node.run("true", user=NOBODY).returncode == 0
        assert node.run("true", *["x" * 100_000] * 6, user=OTHER).returncode == 0
        assert node.run("true", *["x" * 100_000] * 12).returncode == 0  # root's
    wait_until(lambda: not list(node.steps.glob("*.json")), "the step is in the history")
    assert node.run("true", *["x" * 100_000] * 6, user=NOBODY).returncode == 0


def test_tasks_of_one_users_steps_have_a_bound_together(node: Node) -> None:
    with held(node, "-n3", "sh", "-c", "[ $SLURM_PROCID = 0 ] && echo on; exec sleep 1000"):
        refused = node.run("-n2", "true", user=NOBODY)
        assert refused.returncode == 1
        assert "3 tasks of yours are running: max_tasks_per_user = 4" in refused.stderr
        assert node.run("-n1", "true", user=NOBODY).returncode == 0
        assert node.run("-n2", "true", user=OTHER).returncode == 0
        assert node.run("-n5", "true").returncode == 0  # root's
        assert "max_tasks_per_node" in node.run("-n600", "true", user=NOBODY).stderr
    wait_until(lambda: not list(node.steps.glob("*.json")), "the step is in the history")
    assert node.run("-n4", "true", user=NOBODY).returncode == 0


def test_request_has_a_bound_beside_program_and_environment(node: Node) -> None:
    option = ["renice", "renice", "x" * 60_000]
    reply, closed = exchange(node, launch(options=[option] * 5))
    assert reply is not None
    assert not closed
    assert reply["error"] == "org.nodectl.InvalidRequest"
    assert "beside program and environment are more than 262144" in str(reply["parameters"])
    assert list(node.steps.iterdir()) == []


@pytest.mark.skipif(
    not _kernel.capabilities()[0] & CAP_SYS_RESOURCE, reason="root lacks CAP_SYS_RESOURCE here: nobody is spared"
)
def test_oom_killer_is_not_kept_from_a_large_step_runner(node: Node) -> None:
    node.configure(max_step_bytes_per_user=64 << 20)
    node.restart()

    def adjustment() -> int:
        (pid,) = (pid for pid, name in node.processes() if name.startswith("stepd"))
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii"))

    assert node.daemon is not None
    own = int(Path(f"/proc/{node.daemon.pid}/oom_score_adj").read_text(encoding="ascii"))
    with held(node, "sh", "-c", ON) as small:
        wait_until(lambda: adjustment() == -999, "the step runner is spared")
        small.terminate()
        small.communicate(timeout=PATIENCE)
    node.assert_clean()
    with held(node, *large(1_200_000)):
        assert adjustment() == own


def hard_limits(text: str) -> list[int]:
    """Those of LIMITS in a /proc/PID/limits."""
    lines = {line[:26].strip(): line[26:].split()[1] for line in text.splitlines()}
    return [int(lines[name]) for name in LIMITS]


def test_hard_limits_hold_whatever_the_client_says_for_task_and_epilog(node: Node) -> None:
    epilog = node.dir / "epilog"
    epilog.write_text(f"#!/bin/sh\ncat /proc/self/limits >{node.scratch}/epilog\n", encoding="utf-8")
    epilog.chmod(0o755)
    node.configure(task_hard_limits=["CORE=0", "NOFILE=512", "MEMLOCK=1M"], task_epilog=str(epilog))
    node.restart()
    words = {"CORE": -1, "NOFILE": 1000, "MEMLOCK": 2**62}
    program = [
        "sh",
        "-c",
        f"cat /proc/self/limits >{node.scratch}/task; ulimit -Hn 1000 || echo refused >{node.scratch}/no",
    ]
    reply, _ = exchange(node, launch(argv=program, rlimits=words, uid=NOBODY.pw_name))
    assert reply is not None
    job = reply["parameters"]["job"]  # type: ignore[index]
    assert node.call("Wait", job=job, step=0)["record"]
    for who in ("task", "epilog"):
        assert hard_limits((node.scratch / who).read_text(encoding="ascii")) == [0, 512, 1 << 20]
    assert (node.scratch / "no").exists()


def test_who_enters_a_step_has_its_hard_limits_and_not_the_daemons(node: Node) -> None:
    node.configure(task_hard_limits=["CORE=0", "NOFILE=512", "MEMLOCK=1M"])
    node.restart()
    with held(node, "sh", "-c", ON):
        entered = node.nodectl("enter", str(node.last_job()), "cat", "/proc/self/limits", user=NOBODY)
        assert hard_limits(entered.stdout) == [0, 512, 1 << 20], entered.stderr


def test_hard_limits_of_a_login_hold_where_nothing_is_configured(node: Node) -> None:
    """Those of the first process, of a user's processes at most what a kernel begins with."""
    found = node.run("cat", "/proc/self/limits", user=NOBODY).stdout
    lines = {line[:26].strip(): line[26:].split()[1] for line in found.splitlines()}
    limits = [Path("/proc/sys/kernel", name).read_text(encoding="ascii") for name in ("threads-max", "pid_max")]
    most = min(map(int, limits)) // 2
    names = {"Max processes": resource.RLIMIT_NPROC, "Max locked memory": resource.RLIMIT_MEMLOCK}
    for name, number in names.items():
        hard = [
            resource.prlimit(1, number)[1],
            resource.getrlimit(number)[1],
        ]  # without the capability nothing is raised
        hard += [most] if name == "Max processes" else []
        least = min((one for one in hard if one != resource.RLIM_INFINITY), default=-1)
        assert lines[name] == ("unlimited" if least < 0 else str(least))


def test_processes_of_a_user_are_counted_over_all_steps(node: Node) -> None:
    """By the kernel, with clients: the program of a second step is not executed where the first has what there is."""
    node.configure(task_hard_limits=["NPROC=2"])
    node.restart()
    with alone(LONELY), held(node, "sh", "-c", ON, user=LONELY):
        second = node.run("true", user=LONELY)
        assert second.returncode != 0
        assert "Resource temporarily unavailable" in second.stderr
    assert node.run("true", user=LONELY).returncode == 0


def test_launches_in_one_moment_are_counted_one_after_the_other(node: Node) -> None:
    """With a prolog a step is not known at once: all that the daemon reads in one turn find the same room."""
    node.configure(max_steps_per_user=1, prolog="/bin/true")
    node.restart()
    assert node.run("true", user=NOBODY).returncode == 0  # the account is known from now on
    wait_until(lambda: not list(node.steps.iterdir()), "the job is over")
    assert node.daemon is not None
    clients = []
    os.seteuid(NOBODY.pw_uid)
    try:
        clients = [raw_connect(node) for _ in range(4)]
    finally:
        os.seteuid(0)
    node.daemon.send_signal(signal.SIGSTOP)
    for client in clients:
        client.sendall(launch(argv=["sleep", "1000"]))
    node.daemon.send_signal(signal.SIGCONT)
    replies = [framing.receive(client, framing.Inbox(1 << 20)) or {} for client in clients]
    begun = [reply["parameters"]["job"] for reply in replies if "error" not in reply]  # type: ignore[index]
    assert len(begun) == 1
    for job in begun:
        node.nodectl("signal", "-s", "KILL", str(job))
    for client in clients:
        client.close()


def test_who_may_not_become_another_has_no_name_looked_up(node: Node) -> None:
    """The reply is the same for accounts that there are and that there are not: no question to the name service."""
    for name in ("root", "0", "no-such-account"):
        refused = node.run(f"--uid={name}", "true", user=NOBODY)
        assert refused.returncode == 1
        assert f"--uid={name}: only root may run steps as another user" in refused.stderr
    for name in (NOBODY.pw_name, str(NOBODY.pw_uid)):
        assert node.run(f"--uid={name}", "true", user=NOBODY).returncode == 0


def test_traces_of_one_users_steps_count_against_the_bytes_of_their_files() -> None:
    with running(max_step_bytes_per_user=1 << 20) as node, contextlib.ExitStack() as steps:
        for _ in range((1 << 20) // (64 << 10)):  # each step's trace alone may have 64 KiB
            client = steps.enter_context(node.popen("sh", "-c", ON, user=NOBODY))
            assert client.stdout is not None
            if client.stdout.readline() != "on\n":
                break
            steps.callback(client.terminate)
        assert client.wait(PATIENCE) == 1
        assert client.stderr is not None
        assert "max_step_bytes_per_user = 1048576" in client.stderr.read()
        assert node.run("true", user=OTHER).returncode == 0
