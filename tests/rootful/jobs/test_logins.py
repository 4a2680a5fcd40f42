"""Login sessions join a job of their user by real PAM: pam_exec runs `nodectl login --pam`."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.launch.cgroup import tree
from nodectl.launch.cgroup.constraints import cannot_decide_devices
from rootful.contained import contained
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_until
from rootful.pam import MISSING, login

pytestmark = pytest.mark.skipif(MISSING, reason="no PAM here")
LOOP = 7  # a major number that every kernel with loop devices has
# As root: calls JoinLogin from a child, or from a child whose parent has ended. An orphan's new parent is this program,
# which is nobody's by then. Prints the reply.
CALLER = """
import ctypes, json, os, socket, sys

path, uid, kind, *caller = sys.argv[1:]
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
ready, go = os.pipe()
if os.fork() == 0:
    parent = os.getpid()
    if os.fork() == 0:
        os.read(ready, 1)
        while kind == "orphan" and os.getppid() == parent:
            pass
        if caller:
            os.setuid(int(caller[0]))
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        call = {"method": "org.nodectl.JoinLogin", "parameters": {"uid": int(uid)}}
        sock.sendall(json.dumps(call).encode() + bytes(1))
        print(sock.recv(65536).rstrip(bytes(1)).decode(), flush=True)
        os._exit(0)
    if kind != "orphan":
        os.wait()
    os._exit(0)
if kind == "orphan":
    os.setuid(int(uid))
os.write(go, b"g")
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""


@pytest.fixture
def node() -> Iterator[Node]:
    with running(login_entry="join") as started:
        yield started


@contextlib.contextmanager
def job(node: Node, *words: str) -> Iterator[int]:
    """A job of nobody's that runs until it is cancelled, at the latest when the context ends."""
    with node.popen(*words, "sh", "-c", "echo $SLURM_JOB_ID; exec sleep 1000", user=NOBODY) as client:
        assert client.stdout is not None
        number = int(client.stdout.readline())
        try:
            yield number
        finally:
            node.nodectl("cancel", str(number))
            client.communicate(timeout=PATIENCE)


def end(node: Node, number: int) -> None:
    assert node.nodectl("cancel", str(number)).returncode == 0


def group(node: Node, number: int) -> str:
    """The cgroup of sessions in a job."""
    return f"{node.base.removeprefix(node.mount)}/job_{number}/step_0/user/{tree.LOGINS}"


def test_a_session_joins_the_newest_job_and_is_killed_with_it(node: Node) -> None:
    with job(node), job(node) as newest, login(node, NOBODY) as session:
        assert session.code == 0
        assert f"job {newest}" in session.said
        assert session.place() == group(node, newest)
        assert "login sessions" in node.nodectl("show", str(newest), user=NOBODY).stdout
        end(node, newest)
        assert session.process.wait(PATIENCE) == -signal.SIGKILL


def test_a_session_outlives_the_service_and_ends_with_its_job(node: Node) -> None:
    with job(node) as number, login(node, NOBODY) as session:
        node.restart(signal.SIGKILL)
        assert session.place() == group(node, number)
        end(node, number)
        assert session.process.wait(PATIENCE) == -signal.SIGKILL


def test_a_session_that_ends_leaves_its_job_running(node: Node) -> None:
    with job(node) as number:
        with login(node, NOBODY) as session:
            assert session.place() == group(node, number)
            assert session.end() == 0
        assert [step["job"] for step in node.call("List")["steps"]] == [number]  # type: ignore[attr-defined]


def test_a_user_chooses_the_job_for_as_long_as_it_runs(node: Node) -> None:
    with job(node) as first, job(node) as newest:
        assert f"joins job {first}" in node.nodectl("login", str(first), user=NOBODY).stdout
        with login(node, NOBODY) as session:
            assert session.place() == group(node, first)
        assert f"joins job {newest}" in node.nodectl("login", "--newest", user=NOBODY).stdout
        node.nodectl("login", str(first), user=NOBODY)
        end(node, first)
        wait_until(lambda: str(first) not in node.nodectl("login", user=NOBODY).stdout, "the choice has ended")
        with login(node, NOBODY) as session:
            assert session.place() == group(node, newest)
        refused = node.nodectl("login", str(newest), user=OTHER)
        assert (refused.returncode, "of yours" in refused.stderr) == (1, True)


def test_a_session_in_a_job_has_its_variables_and_starts_steps_of_it(node: Node) -> None:
    with job(node) as number, login(node, NOBODY) as session:
        tool = f"{node.dir}/login-helper"
        assert session.run(f'eval "$({tool} --export)"; echo $SLURM_JOB_ID $NODECTL_JOB_ID') == f"{number} {number}"
        assert f"this session is in job {number}" in session.run(tool)
    with login(node, OTHER) as session:
        assert session.run(f"{tool} --export") == ""


def test_a_session_is_outside_of_the_container_of_its_job_until_it_enters_it() -> None:
    with contained(login_entry="join") as found, job(found.node) as number, login(found.node, NOBODY) as session:
        assert session.place() == group(found.node, number)
        look = ["readlink", "/proc/self/ns/mnt"]
        assert session.run(shlex.join(look)) == os.readlink(look[1])
        inside = session.run(shlex.join(found.node.command("enter", str(number), *look)))
        assert inside == found.node.nodectl("enter", str(number), *look, user=NOBODY).stdout.strip()
        assert inside != os.readlink(look[1])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be shared out")
def test_a_session_has_the_cpus_of_its_job() -> None:
    with (
        running(login_entry="join", select_type="select/cons_tres", over_subscribe="no") as node,
        job(node, "-n1") as number,
        login(node, NOBODY) as session,
    ):
        held = json.loads(node.nodectl("show", "--json", str(number)).stdout)["cpus"]
        allowed = session.run("sed -n 's/^Cpus_allowed:.//p' /proc/self/status").replace(",", "")
        assert int(allowed, 16) == int(held, 16) != 0


def test_a_session_without_a_job_stays_where_it_is(node: Node) -> None:
    with job(node), login(node, OTHER) as session:
        assert (session.code, session.said) == (0, "")
        assert node.cgroup_name not in session.place()


@pytest.mark.parametrize(("rule", "allowed"), [("allow", True), ("refuse", False)])
def test_a_service_that_is_away_or_hangs_holds_up_no_login(rule: str, *, allowed: bool) -> None:
    with running(login_entry="join", login_when_down=rule) as node:
        node.stop()
        with login(node, NOBODY) as session:
            assert (session.code == 0) is allowed
        node.socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(node.socket))
            silent.listen()
            with login(node, NOBODY) as session:
                assert (session.code == 0) is allowed
                assert "within" in session.said


def test_on_a_machine_for_jobs_alone_a_user_without_one_is_refused_and_root_is_not() -> None:
    with running(login_entry="require", admin_group="daemon") as node:
        with login(node, NOBODY) as session:
            assert (session.code != 0, "no job of yours" in session.said) == (True, True)
        for user in (OTHER, pwd.getpwuid(0)):  # an admin, and root
            with login(node, user) as session:
                assert session.code == 0
        with job(node) as number, login(node, NOBODY) as session:
            assert session.place() == group(node, number)


def test_a_suspended_job_takes_no_session(node: Node) -> None:
    """It would be frozen with the job."""
    with job(node) as first, job(node) as newest:
        assert node.nodectl("suspend", str(newest)).returncode == 0
        with login(node, NOBODY) as session:
            assert session.place() == group(node, first)
        assert node.nodectl("resume", str(newest)).returncode == 0


def test_a_session_that_begins_in_a_job_stays_in_it(node: Node) -> None:
    """As that of su(1): one user's processes do not go into another one's job."""
    with job(node) as first, job(node) as newest:
        assert newest > first
        with login(node, NOBODY, within=f"{node.base}/job_{first}/step_0/user/task_0") as session:
            assert session.code == 0
            assert session.place().startswith(f"{group(node, first).rpartition('/')[0]}/task_0")


def test_a_job_that_ends_while_sessions_begin_leaves_none_of_them_within(node: Node) -> None:
    for _ in range(4):
        with job(node) as number, contextlib.ExitStack() as sessions:
            canceller = subprocess.Popen(node.command("cancel", str(number)))
            begun = [sessions.enter_context(login(node, NOBODY)) for _ in range(2)]
            assert canceller.wait(PATIENCE) == 0
            wait_until(lambda number=number: not Path(f"{node.base}/job_{number}").exists(), "the job's cgroup is gone")
            for session in begun:
                # "is in no job: job 7: No such file or directory" if the job had just ended
                joined = f"job {number}" in session.said and "in no job" not in session.said
                if session.code or joined:
                    assert session.process.wait(PATIENCE) == -signal.SIGKILL
                else:
                    assert node.cgroup_name not in session.place()


def call(node: Node, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-IS", "-c", CALLER, str(node.socket), str(NOBODY.pw_uid), *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout


def test_only_root_moves_sessions_and_never_a_process_that_has_lost_its_own(node: Node) -> None:
    with job(node) as number:
        assert "NotPermitted" in call(node, "child", str(NOBODY.pw_uid))
        assert not tree.Group(f"{node.mount}{group(node, number)}").exists()
        assert "WrongState" in call(node, "orphan")
        assert f'"job":{number}' in call(node, "child").replace(" ", "")


@pytest.mark.skipif(cannot_decide_devices() != "", reason="no program can decide about devices here")
def test_a_session_opens_the_devices_of_its_job_and_no_others() -> None:
    made = Node(login_entry="join")
    try:
        for minor, name in enumerate(("first", "second")):
            os.mknod(made.dir / name, stat.S_IFBLK | 0o666, os.makedev(LOOP, minor))
            (made.dir / name).chmod(0o666)
        made.configure(gres=[f"Name=gpu File={made.dir}/{name}" for name in ("first", "second")])
        made.start()
        opens = f'for name in first second; do (: <"{made.dir}/$name") 2>/dev/null && echo $name; done; :'
        with login(made, NOBODY) as session:
            outside = session.run(opens)
        with job(made, "--gpus=1"), login(made, NOBODY) as session:
            assert session.run(opens) == "first"
            assert "CUDA_VISIBLE_DEVICES=0" in session.run(f"{made.dir}/login-helper --export")
        assert outside.split() == ["first", "second"]
        made.assert_clean()
    finally:
        made.close()
