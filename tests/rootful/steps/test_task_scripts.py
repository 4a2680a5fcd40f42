"""What the scripts around a task have, and have not, of the processes that they come from."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel import _kernel
from nodectl.launch.cgroup import tree
from nodectl.launch.cgroup.constraints import cannot_decide_devices
from nodectl.launch.stepd import task_epilogs
from rootful.node import NOBODY, PATIENCE, Node, wait_until

LOOP = 7
CAP_SYS_RESOURCE = 1 << 24


@pytest.fixture
def node() -> Iterator[Node]:
    """Not started."""
    made = Node()
    try:
        yield made
        made.assert_clean()
    finally:
        made.close()


def script(node: Node, text: str) -> Path:
    path = node.scratch / "script"
    path.write_text(f"#!/bin/sh\nexec > {node.scratch}/$SLURM_SCRIPT_CONTEXT 2>&1\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def said(node: Node, context: str) -> list[str]:
    return (node.scratch / context).read_text(encoding="utf-8").splitlines()


def left(node: Node) -> list[str]:
    """Processes of epilogs."""
    (place,) = Path(node.base).glob("job_*/step_0/epilog")
    pids: list[str] = []
    for path in place.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):  # the cgroup of one task's scripts goes with them
            pids += path.read_text(encoding="ascii").split()
    return pids


def test_nothing_that_a_plugin_has_open_reaches_them(node: Node) -> None:
    """A compiled plugin's open(2) lets whoever is executed have the file."""
    secret = node.dir / "secret"
    secret.touch(0o600)
    node.plugin("opens", f'''
import os
def slurm_spank_init(sp, ac, argv):
    if os.getuid() == 0:
        os.set_inheritable(os.open("{secret}", os.O_RDONLY), True)
''')  # fmt: skip
    node.plugstack("required opens\n")
    node.start()
    path = script(node, "ls -l /proc/self/fd")
    done = node.run(f"--task-prolog={path}", f"--task-epilog={path}", "ls", "-l", "/proc/self/fd", user=NOBODY)
    assert done.returncode == 0, done.stderr
    for lines in (done.stdout.splitlines(), said(node, "prolog_task"), said(node, "epilog_task")):
        assert any("/dev/null" in line for line in lines)
        assert not any("secret" in line for line in lines)


def test_epilog_is_as_easy_to_kill_as_a_task_and_leaves_nothing(node: Node) -> None:
    """Its step goes on: another task has not ended."""
    node.start()
    path = script(node, "cat /proc/self/oom_score_adj /proc/self/cgroup; setsid sleep 60 & sleep 0.1; echo over")
    words = ["-n2", f"--task-epilog={path}", "sh", "-c", "test $SLURM_PROCID = 0 || exec sleep 60"]
    client = node.popen(*words, user=NOBODY)
    output = node.scratch / "epilog_task"
    wait_until(lambda: output.exists() and "over" in said(node, "epilog_task"), "the first task's epilog is over")
    lowered = _kernel.capabilities()[0] & CAP_SYS_RESOURCE
    own = Path("/proc/self/oom_score_adj").read_text(encoding="utf-8").strip()
    assert said(node, "epilog_task")[0] == ("0" if lowered else own)
    assert any(line.endswith("/step_0/epilog/task_0") for line in said(node, "epilog_task"))
    wait_until(lambda: left(node) == [], "what it left is gone")
    node.nodectl("signal", "-s", "KILL", str(node.last_job()))
    client.communicate(timeout=PATIENCE)


@pytest.mark.skipif(cannot_decide_devices() != "", reason="no program can decide about devices here")
@pytest.mark.parametrize("tasks", [2, 33], ids=["a runner that is kept", "one that is confined"])
def test_epilog_opens_no_device_that_its_task_could_not(node: Node, tasks: int) -> None:
    device = node.dir / "device"
    os.mknod(device, stat.S_IFBLK | 0o666, os.makedev(LOOP, 2))
    device.chmod(0o666)
    node.configure(allowed_devices=["/dev/nothing-of-this-name*"])
    node.start()
    path = script(node, f"sh -c ': < {device}'")
    assert node.run(f"-n{tasks}", f"--task-epilog={path}", "true", user=NOBODY).returncode == 0
    assert "Operation not permitted" in said(node, "epilog_task")[0]


def test_epilog_of_a_task_that_died_suspended_is_not_suspended(node: Node) -> None:
    """The step runner waits for it, and could not be told to resume."""
    script(node, "echo over")
    node.configure(task_epilog=str(node.scratch / "script"), suspend_grace_time=0)
    node.start()
    client = node.popen("sh", "-c", "echo $$; exec sleep 60", user=NOBODY)
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    job = str(node.last_job())
    assert node.nodectl("suspend", job).returncode == 0
    frozen = next(Path(node.base).glob("job_*/step_0/user/cgroup.freeze"))
    wait_until(lambda: frozen.read_text(encoding="ascii") == "1\n", "it is frozen")
    os.kill(pid, signal.SIGKILL)
    client.communicate(timeout=PATIENCE)
    assert said(node, "epilog_task") == ["over"]


@pytest.fixture
def no_more_processes() -> Iterator[Path]:
    """A cgroup of v1's whose processes cannot fork."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines())
    mount = next((words[1] for words in mounts if words[2] == "cgroup" and "pids" in words[3].split(",")), "")
    if not mount:
        pytest.skip("pids does not belong to cgroup v1 here")
    group = Path(mount, f"nodectl-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "pids.max").write_text("1", encoding="ascii")
        yield group
    finally:
        wait_until(tree.Group(str(group)).remove, f"{group} is empty")


def test_a_step_whose_epilog_cannot_be_forked_ends_as_its_task_did(node: Node, no_more_processes: Path) -> None:
    """Steps of one job share its limit of processes."""
    script(node, "echo over")
    node.configure(task_epilog=str(node.scratch / "script"))
    node.start()
    client = node.popen("sh", "-c", "echo on; read line; exit 7", user=NOBODY, stdin=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "on\n"
    stepd = next(pid for pid, name in node.processes() if name.startswith("stepd"))
    (no_more_processes / "cgroup.procs").write_text(str(stepd), encoding="ascii")
    _, errors = client.communicate("\n", timeout=PATIENCE)
    assert client.returncode == 7
    assert "Resource temporarily unavailable" in errors
    assert node.record(node.last_job())["state"] == "FAILED"


def test_the_epilogs_of_tasks_run_side_by_side(node: Node) -> None:
    """Each ends when all have begun: one after the other they would wait for the limit of a user's epilog."""
    node.start()
    go = node.scratch / "begun"
    go.mkdir()
    go.chmod(0o777)
    path = script(node, f": > {go}/$SLURM_PROCID; until [ $(ls {go} | wc -l) = 4 ]; do sleep 0.01; done")
    done = node.run("-n4", f"--task-epilog={path}", "true", user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")


def test_more_epilogs_than_may_run_at_a_time_run_all(node: Node) -> None:
    node.start()
    path = node.scratch / "script"
    path.write_text(f"#!/bin/sh\n: > {node.scratch}/epilog.$SLURM_PROCID\n", encoding="utf-8")
    path.chmod(0o755)
    count = task_epilogs._MOST + 3
    done = node.run(f"-n{count}", f"--task-epilog={path}", "true", user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(node.scratch.glob("epilog.*"))) == count


ENDLESS = "trap '' TERM; touch $SLURM_SUBMIT_DIR/runs; while :; do sleep 1; done"


def begin_endless_epilog(node: Node, *words: str) -> subprocess.Popen[str]:
    """A step of two tasks that have ended, and the site's epilog of both runs for ever."""
    path = script(node, ENDLESS.replace("$SLURM_SUBMIT_DIR", f"{node.scratch}"))
    node.configure(task_epilog=str(path), kill_wait=1)
    node.start()
    client = node.popen("-n2", *words, "true", user=NOBODY)
    wait_until((node.scratch / "runs").exists, "an epilog runs")
    return client


def test_what_an_epilog_writes_to_stderr_comes_to_the_user_when_it_has_ended(node: Node) -> None:
    path = node.scratch / "writes"
    path.write_text("#!/bin/sh\necho one >&2\necho nowhere\necho two > /dev/stderr\n", encoding="utf-8")
    path.chmod(0o755)
    node.start()
    done = node.run(f"--task-epilog={path}", "echo", "task", user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "task\n", "one\ntwo\n")


def test_only_the_beginning_is_passed_on_of_an_epilog_that_writes_without_end(node: Node) -> None:
    """It is ended by its limit, and holds up no one."""
    path = node.scratch / "writes"
    path.write_text("#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\000' x >&2\n", encoding="utf-8")
    path.chmod(0o755)
    node.start()
    done = node.run("-n2", f"--task-epilog={path}", "true", user=NOBODY)
    assert done.returncode == 0
    assert sorted(set(done.stderr.splitlines())) == sorted(
        {"x" * (1 << 14), f"... and {300_000 - (1 << 14)} bytes more"}
    )


def test_a_step_whose_epilog_runs_ends_by_sigkill(node: Node) -> None:
    client = begin_endless_epilog(node)
    job = node.last_job()
    assert node.nodectl("signal", "-s", "KILL", str(job)).returncode == 0
    _, said_by_client = client.communicate(timeout=PATIENCE)
    assert "was ended by signal 9" in said_by_client
    assert node.record(job)["state"] == "CANCELLED"


def test_a_step_whose_epilog_runs_ends_at_its_time_limit(node: Node) -> None:
    client = begin_endless_epilog(node, "--time=0:10")
    client.communicate(timeout=PATIENCE)
    record = node.record(node.last_job())
    assert record["state"] == "CANCELLED"
    assert "its time limit was reached before its epilogs had ended" in str(record["reason"])


def test_epilogs_of_tasks_that_a_time_limit_ends_run_no_longer_than_kill_wait(node: Node) -> None:
    path = script(node, ENDLESS.replace("$SLURM_SUBMIT_DIR", f"{node.scratch}"))
    node.configure(task_epilog=str(path), kill_wait=1)
    node.start()
    client = node.popen("-n2", "--time=0:05", "sh", "-c", "trap '' TERM; while :; do sleep 1; done", user=NOBODY)
    client.communicate(timeout=PATIENCE)
    assert (node.scratch / "runs").exists()  # although its task died of the last signal
    assert node.record(node.last_job())["state"] == "TIMEOUT"


def test_the_step_runner_answers_while_epilogs_run(node: Node) -> None:
    client = begin_endless_epilog(node)
    job = node.last_job()
    shown = node.nodectl("show", "--json", str(job))  # asks the step runner
    assert json.loads(shown.stdout)["tasks"][0]["status"] == 0
    node.nodectl("signal", "-s", "KILL", str(job))
    client.communicate(timeout=PATIENCE)
