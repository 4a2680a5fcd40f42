"""A task that shares its stepd's memory until its program begins: what its user can do to it in that time, and that it
does what a fork does.

It is held where it has become the user and opens its standard input, which is a FIFO.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl import plugin_host
from rootful.contained import contained
from rootful.native import native
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

# Each way to another process's memory, tried by its user: what they all answer.
SPY = """
import ctypes, os, sys
libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
said = []
for name in ("mem", "environ", "auxv", "maps", "fd", "stack"):
    try:
        os.listdir(f"/proc/{pid}/fd") if name == "fd" else open(f"/proc/{pid}/{name}", "rb").read(1)
    except OSError:
        continue
    said.append(name)
class Piece(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
room = ctypes.create_string_buffer(8)
here, there = Piece(ctypes.addressof(room), 8), Piece(int(sys.argv[2], 16), 8)
if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) >= 0:
    said.append("process_vm_readv")
if libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) >= 0:
    said.append("process_vm_writev")
for name, request in (("attach", 16), ("seize", 0x4206)):
    if libc.ptrace(request, pid, 0, 0) == 0:
        said.append(name)
print(*said)
"""


pytestmark = pytest.mark.skipif(
    Path("/proc/sys/fs/suid_dumpable").read_text(encoding="ascii") != "0\n",
    reason="fs.suid_dumpable is not 0 here: no task shares its step runner's memory",
)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running(always_fork=False) as started:
        yield started


class Held:
    """A step of one task that waits for its input."""

    def __init__(self, node: Node, *words: str) -> None:
        self.fifo = node.scratch / "fifo"
        self.fifo.unlink(missing_ok=True)
        os.mkfifo(self.fifo)
        self.fifo.chmod(0o666)
        self.step = node.popen(f"--input={self.fifo}", *words, user=NOBODY)
        self.pid, self.stepd = 0, 0
        wait_until(lambda: self._find(node), "the task has become its user")

    def _find(self, node: Node) -> bool:
        for pid, name in node.processes():
            if name.startswith("stepd"):
                status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
                uid = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
                if uid == "0" and not self.stepd:
                    self.stepd = pid
                elif uid == str(NOBODY.pw_uid):
                    self.pid = pid
        return bool(self.pid and self.stepd)

    def let_go(self) -> tuple[int, str]:
        """Its input comes. Exit status and what it said."""
        fd = os.open(self.fifo, os.O_RDWR)  # never waits; who is continued may open its end once more
        try:
            return self.end()
        finally:
            os.close(fd)

    def end(self) -> tuple[int, str]:
        """Exit status and what it said."""
        _, said = self.step.communicate(timeout=PATIENCE)
        return self.step.returncode, said


def share_memory(one: int, other: int) -> bool:
    """What the kernel says: kcmp(2), KCMP_VM. A fork's map looks like its parent's, too."""
    number = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354}[os.uname().machine]
    return bool(ctypes.CDLL(None).syscall(number, one, other, 1, 0, 0) == 0)


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def as_nobody(*words: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=PATIENCE, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
        extra_groups=(),
    )  # fmt: skip
    return done.stdout


def test_its_user_cannot_look_at_memory_that_is_the_step_runners(node: Node) -> None:
    held = Held(node, "true")
    assert share_memory(held.pid, held.stepd), "the test is about a task that shares it"
    address = maps(held.stepd).partition("-")[0]
    assert as_nobody(sys.executable, "-IS", "-c", SPY, str(held.pid), address) == "\n"
    assert held.let_go() == (0, "")
    node.assert_clean()


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGTERM, signal.SIGALRM, signal.SIGKILL])
def test_a_signal_that_its_user_sends_ends_the_task_alone_and_without_a_core(node: Node, number: int) -> None:
    held = Held(node, "true")
    as_nobody("/bin/sh", "-c", f"kill -{int(number)} {held.pid}")
    status, said = held.end()
    assert status == 128 + number, said
    record: dict[str, Any] = node.record(node.last_job())
    assert record["state"] == "FAILED"
    (task,) = record["tasks"]
    assert not os.WCOREDUMP(task["status"])
    assert "runner died" not in said
    node.assert_clean()


def test_a_task_that_its_user_stops_goes_on_when_it_is_continued(node: Node) -> None:
    held = Held(node, "true")
    as_nobody("/bin/sh", "-c", f"kill -STOP {held.pid}")
    stopped = Path(f"/proc/{held.pid}/stat")
    wait_until(lambda: stopped.read_text(encoding="ascii").rpartition(") ")[2][0] == "T", "it stands still")
    assert node.nodectl("ps", user=NOBODY).returncode == 0
    as_nobody("/bin/sh", "-c", f"kill -CONT {held.pid}")
    assert held.let_go() == (0, "")
    node.assert_clean()


def test_a_step_runner_that_dies_meanwhile_leaves_no_task_behind(node: Node) -> None:
    held = Held(node, "touch", "begun")
    os.kill(held.stepd, signal.SIGKILL)
    status, said = held.end()
    assert status != 0, said
    assert not (node.scratch / "begun").exists()
    node.assert_clean()


def test_nothing_that_a_task_gives_up_is_taken_from_its_step_runner(node: Node) -> None:
    words = ("--secure=strict", "-D", str(node.scratch), "sh", "-c", ": >begun; exec sleep 1000")
    step = node.popen(*words, user=NOBODY)
    wait_until((node.scratch / "begun").exists, "the program runs")
    (stepd,) = (pid for pid, name in node.processes() if name.startswith("stepd"))
    facts = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{stepd}/status").read_text(encoding="ascii").splitlines()
    )
    assert facts["Uid"].split() == ["0"] * 4
    assert (facts["Seccomp"], facts["NoNewPrivs"]) == ("0", "0")
    assert facts["SigBlk"] == "0" * 16
    assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) != 0
    assert "Landlock" not in facts
    (Path(f"/proc/{stepd}/root/run") / node.dir.name / "proof").touch()
    step.terminate()
    step.communicate(timeout=PATIENCE)
    node.assert_clean()


Row = tuple[Any, ...]


def rows(node: Node, *words: str) -> list[Row]:
    """What the tasks' lines of a trace say, but for times and pids."""
    done = node.run(*words, user=NOBODY)
    job = node.last_job()
    lines = [line for line in node.trace(job) if line["process"] == "task"]
    facts = (
        "call",
        "kind",
        "plugin",
        "task",
        "ruid",
        "euid",
        "rgid",
        "egid",
        "groups",
        "caps",
        "affinity",
        "rc",
        "note",
    )
    # Tasks that end at once may be told of in one line.
    told = [line.replace(f"{job}.0", "JOB") for line in done.stderr.splitlines() if "Exited with" not in line]
    found: list[Row] = [
        (*(line.get(name) for name in facts), str(line["cgroup"]).rpartition("/")[2])
        for line in sorted(lines, key=lambda line: int(str(line["task"])))
    ]
    return [(done.returncode, *sorted(told)), *found]


@pytest.mark.parametrize(
    "words",
    [
        ("-n2", "true"),
        ("--secure=strict", "-D", "/usr", "true"),
        ("--secure=none", "true"),
        ("no-such-program",),
        ("/tmp",),
        ("-n2", "-o", "/root/out", "true"),
        ("-D", "/root", "true"),
        ("--label", "echo", "x"),
    ],
    ids=" ".join,
)
def test_a_fork_and_a_task_that_shares_memory_do_the_same(node: Node, words: tuple[str, ...]) -> None:
    shared = rows(node, *words)
    with running(always_fork=True) as forking:
        assert rows(forking, *words) == shared
        forking.assert_clean()
    assert len(shared) > 4


KINDS = [[], ["pid"], ["ipc", "uts", "net", "cgroup"], ["pid", "ipc", "uts", "net", "cgroup"]]


@pytest.mark.parametrize("kinds", KINDS, ids=" ".join)
def test_a_task_in_a_container_shares_memory_and_does_what_a_fork_does(kinds: list[str]) -> None:
    words = ("-n2", "-D", "/usr", "sh", "-c", "echo $(($$ == SLURM_TASK_PID)) >&2; pwd >&2; touch /dev/shm/of-the-job")
    with contained(always_fork=False, container_dirs=["/dev/shm"], container_namespaces=kinds) as found:
        held = Held(found.node, "true")
        assert share_memory(held.pid, held.stepd), "the test is about a task that shares it"
        assert held.let_go() == (0, "")
        shared = rows(found.node, *words)
    with contained(always_fork=True, container_dirs=["/dev/shm"], container_namespaces=kinds) as found:
        assert rows(found.node, *words) == shared
    joined = [row for row in shared if row[0] == "container_p_add_pid"]
    assert len(joined) == 2
    assert not Path("/dev/shm/of-the-job").exists()


@pytest.mark.parametrize("kind", ["user", "time"])
def test_a_namespace_that_wants_a_process_of_its_own_memory_gets_a_fork(kind: str) -> None:
    with contained(always_fork=False, container_dirs=["/dev/shm"], container_namespaces=[kind]) as found:
        held = Held(found.node, "true")
        assert not share_memory(held.pid, held.stepd)
        assert held.let_go() == (0, "")


@pytest.mark.parametrize("always_fork", [False, True])
def test_tasks_born_in_a_pid_namespace_are_one_process_group(*, always_fork: bool) -> None:
    with contained(always_fork=always_fork, container_namespaces=["pid"]) as found:
        node = found.node
        step = node.popen("-n3", "sh", "-c", "echo begun; exec sleep 1000", user=NOBODY)
        assert step.stdout is not None
        assert [step.stdout.readline() for _ in range(3)] == ["begun\n"] * 3
        wait_until(lambda: len(sleepers(node)) == 3, "all tasks are their programs")
        assert len({os.getpgid(pid) for pid in sleepers(node)}) == 1
        step.terminate()
        step.communicate(timeout=PATIENCE)


def sleepers(node: Node) -> list[int]:
    return [pid for pid, name in node.processes() if name == "sleep"]


def test_a_container_that_cannot_be_joined_says_what_a_fork_says(tmp_path: Path) -> None:
    plugin = tmp_path / "job_container" / "broken.py"
    plugin.parent.mkdir()
    plugin.write_text(BROKEN, encoding="utf-8")
    said = []
    for always_fork in (False, True):
        with running(
            always_fork=always_fork, plugin_dir=[str(tmp_path), str(BUILTIN)], job_container_type="job_container/broken"
        ) as node:
            said.append(rows(node, "-n2", "true"))
            node.assert_clean()
    assert said[0] == said[1]
    assert "container_p_add_pid: join the container: Invalid argument (mnt namespace)" in said[0][0][1]


BUILTIN = Path(plugin_host.BUILTIN_DIR)
BROKEN = """
import os
from nodectl.kernel import operations

plugin_type = "job_container/broken"
plugin_name = "a container that is none"
plugin_version = (22, 5, 8)
NULL = os.open("/dev/null", os.O_RDONLY)

def container_p_add_pid_plan(step, task):
    return [operations.join_namespace(NULL, "join the container: ", " (mnt namespace)")]

def container_p_add_pid(job_id, pid, uid):
    raise AssertionError("called in the place of its plan")
"""


@pytest.mark.parametrize(
    "hooks", [("init", "init_post_opt", "user_init", "task_post_fork", "task_exit", "exit"), ("task_init",)]
)
def test_only_a_stack_with_hooks_of_the_task_costs_a_fork(node: Node, hooks: tuple[str, ...]) -> None:
    native(node, "stacked", **dict.fromkeys(hooks, ""))
    node.plugstack("required stacked.so\n")
    try:
        held = Held(node, "true")
        assert share_memory(held.pid, held.stepd) == ("task_init" not in hooks)
        assert held.let_go() == (0, "")
    finally:
        node.plugstack("")
    node.assert_clean()
