"""A task that shares its stepd's memory until its program begins: what its user can do to it in that time.

It is held where it has become the user and opens its standard input, which is a FIFO.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rootful.held import Held, as_nobody, facts_of, share_memory, shares_memory, sleepers, stop, tasks_of
from rootful.node import FORKS, NOBODY, PATIENCE, Node, running, wait_until
from rootful.own import own_node

# Each way to another process's memory, at an address where it may be written: which of them succeed. What is written is
# what was read.
SPY = """
import ctypes, os, sys
libc, pid, address = ctypes.CDLL(None, use_errno=True), int(sys.argv[1]), int(sys.argv[2], 16)
said = []
for name in ("mem", "environ", "auxv", "maps", "pagemap", "fd", "stack"):
    try:
        if name == "fd":
            os.listdir(f"/proc/{pid}/fd")
        else:
            with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
                file.seek(address if name == "mem" else 0)
                file.read(8)
    except OSError:
        continue
    said.append(name)
class Piece(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
room = ctypes.create_string_buffer(8)
here, there = Piece(ctypes.addressof(room), 8), Piece(address, 8)
if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == 8:
    said.append("process_vm_readv")
if libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == 8:
    said.append("process_vm_writev")
ATTACH, DETACH, SEIZE, WALL = 16, 17, 0x4206, 1 << 30
libc.ptrace.argtypes = [ctypes.c_long] * 4
for name, request in (("seize", SEIZE), ("attach", ATTACH)):
    child = os.fork()
    if child == 0:  # its end detaches it
        failed = libc.ptrace(request, pid, 0, 0) != 0
        if not failed and request == ATTACH:
            os.waitpid(pid, WALL)
            libc.ptrace(DETACH, pid, 0, 0)
        os._exit(failed)
    if os.waitpid(child, 0)[1] == 0:
        said.append(name)
print(*said)
"""
EVERY_WAY = [
    "mem", "environ", "auxv", "maps", "pagemap", "fd", "stack", "process_vm_readv", "process_vm_writev", "seize",
    "attach",
]  # fmt: skip


pytestmark = shares_memory


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running(always_fork=False) as started:
        yield started


def test_its_user_cannot_look_at_memory_that_is_the_step_runners(node: Node) -> None:
    held = Held(node, "true")
    assert share_memory(held.pid, held.stepd), "the test is about a task that shares it"
    maps = Path(f"/proc/{held.stepd}/maps").read_text(encoding="utf-8")
    address = next(line.partition("-")[0] for line in maps.splitlines() if line.endswith("[stack]"))
    spy = (sys.executable, "-IS", "-c", SPY, str(held.pid), address)
    assert as_nobody(*spy) == "\n"
    root = subprocess.run(spy, capture_output=True, text=True, check=True, timeout=PATIENCE)
    ways = [way for way in EVERY_WAY if way != "stack" or Path("/proc/self/stack").exists()]
    assert root.stdout.split() == ways, "who may look sees that each of them is a way"
    assert held.let_go() == (0, "")
    node.assert_clean()


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGTERM, signal.SIGALRM, signal.SIGKILL])
def test_a_signal_that_its_user_sends_ends_the_task_alone(node: Node, number: int) -> None:
    held = Held(node, "true")
    as_nobody("/bin/sh", "-c", f"kill -{int(number)} {held.pid}")
    status, said = held.end()
    assert status == 128 + number, said
    assert node.record(node.last_job())["state"] == "FAILED"
    assert "runner died" not in said
    node.assert_clean()


@pytest.fixture(scope="module")
def dumping_node() -> Iterator[Node]:
    """Whose daemon, tasks and clients may leave a core of any size behind."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        with running(always_fork=False) as started:
            yield started
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


WAITS_BEFORE_THE_GATE = """
def slurm_spank_task_post_fork(*_):
    open({path!r}).close()
    return 0
"""


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
def test_nothing_dumps_the_memory_that_a_task_shares(dumping_node: Node, number: int) -> None:
    """In a directory in which its user may write; where it was not forbidden, a core of its stepd would lie there."""
    node = dumping_node
    fifo = node.dir / f"gate-{number}"
    os.mkfifo(fifo)
    node.plugin("gate", WAITS_BEFORE_THE_GATE.format(path=str(fifo)))
    node.plugstack(f"required {node.plugins}/spank/gate.py\n")
    step = node.popen("true", user=NOBODY)
    wait_until(lambda: any(is_in(pid, node.scratch) for pid, _ in tasks_of(node)), "the task is in its directory")
    node.plugstack("")
    ((pid, stepd),) = tasks_of(node)
    assert share_memory(pid, stepd), "the test is about a task that shares it"
    assert facts_of(pid)["Uid"].split()[0] == str(NOBODY.pw_uid)
    assert core_limit(pid) == "unlimited", "else nothing is dumped, whatever the memory is"
    as_nobody("/bin/sh", "-c", f"kill -{int(number)} {pid}")
    wait_until(lambda: facts_of(pid)["State"][0] in "Z-", "it has ended")
    fifo.write_text("")
    assert step.wait(PATIENCE) == 128 + number
    assert "runner died" not in step.communicate()[1]
    assert not dumped_core(node)
    assert not list(node.scratch.glob("core*"))
    node.assert_clean()


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
def test_a_program_that_a_task_has_become_leaves_a_core_behind(dumping_node: Node, number: int) -> None:
    """Where one that was killed before it leaves none."""
    node = dumping_node
    step = node.popen("sleep", "1000", user=NOBODY)
    wait_until(lambda: sleepers(node), "it is its program")
    (pid,) = sleepers(node)
    assert core_limit(pid) == "unlimited"
    as_nobody("/bin/sh", "-c", f"kill -{int(number)} {pid}")
    assert step.wait(PATIENCE) == 128 + number
    assert dumped_core(node)
    found = list(node.scratch.glob("core*"))
    assert found or Path("/proc/sys/kernel/core_pattern").read_text(encoding="utf-8")[0] in "/|"
    for path in found:
        path.unlink()
    step.communicate()
    node.assert_clean()


def is_in(pid: int, directory: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(directory)
    except OSError:
        return False


def core_limit(pid: int) -> str:
    (line,) = (
        line for line in Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines() if "core file" in line
    )
    return line.split()[4]


def dumped_core(node: Node) -> bool:
    """What the kernel said of the only task of the step that ended last."""
    record: dict[str, Any] = node.record(node.last_job())
    (task,) = record["tasks"]
    return os.WCOREDUMP(task["status"])


def test_a_task_that_its_user_stops_goes_on_when_it_is_continued(node: Node) -> None:
    held = Held(node, "true")
    stop(held)
    assert node.nodectl("ps", user=NOBODY).returncode == 0
    as_nobody("/bin/sh", "-c", f"kill -CONT {held.pid}")
    assert held.let_go() == (0, "")
    node.assert_clean()


def test_a_task_that_its_user_stops_can_be_cancelled(node: Node) -> None:
    held = Held(node, "touch", "begun")
    stop(held)
    job = node.last_job()
    assert node.nodectl("cancel", str(job), user=NOBODY).returncode == 0
    status, said = held.end()
    assert status != 0, said
    assert node.record(job)["state"] == "CANCELLED"
    assert not (node.scratch / "begun").exists()
    node.assert_clean()


def test_a_task_that_its_user_stops_has_no_more_time_than_its_step(node: Node) -> None:
    held = Held(node, "--time=0:10", "touch", "begun")
    stop(held)
    status, said = held.end()
    assert status != 0, said
    assert node.record(node.last_job())["state"] == "TIMEOUT"
    assert not (node.scratch / "begun").exists()
    node.assert_clean()


@pytest.mark.parametrize(
    "keys",
    [{}, {"proctrack_type": "proctrack/linuxproc", "task_plugin": "task/none"}],
    ids=["cgroups", "no cgroups"],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_a_step_runner_that_dies_meanwhile_leaves_no_task_behind(keys: dict[str, object], *, stopped: bool) -> None:
    """Without cgroups nobody else knows of the task."""
    with running(always_fork=False, **keys) as node:
        held = Held(node, "touch", "begun")
        assert share_memory(held.pid, held.stepd), "the test is about a task that shares it"
        if stopped:
            stop(held)
        os.kill(held.stepd, signal.SIGKILL)
        status, said = held.end()
        assert status != 0, said
        wait_until(lambda: not Path(f"/proc/{held.pid}").exists(), "the task has gone, too")
        assert not (node.scratch / "begun").exists()
        assert node.record(node.last_job())["state"] == "NODE_FAIL"


TELLS_OF_ITS_STEPD = """
import os

def task_p_pre_setuid(step):
    tell("before")
    return 0

def task_p_post_step(step):
    tell("after")
    return 0

def tell(when):
    for name in ("status", "limits"):
        with open("/proc/self/" + name) as file, open("{directory}/" + when + "." + name, "w") as out:
            out.write(file.read())
    with open("{directory}/" + when + ".cwd", "w") as out:
        out.write(os.getcwd())
"""
OF_A_PROCESS = (
    "Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
    "NoNewPrivs", "Seccomp", "Seccomp_filters",
)  # fmt: skip


def test_nothing_that_a_task_gives_up_is_taken_from_its_step_runner() -> None:
    """What the runner writes at last, where no task of a strict step may, is written by nobody else: Landlock is in no
    file of /proc.
    """
    node = Node(always_fork=False, task_plugin="task/affinity,task/cgroup,task/tells")
    node.plugin("tells", TELLS_OF_ITS_STEPD.replace("{directory}", str(node.scratch)), "task")
    work = node.scratch / "work"
    work.mkdir()
    work.chmod(0o777)
    try:
        node.start()
        tries = "umask; ulimit -n 64; : >here; : >../there"
        held = Held(node, "--secure=strict", "-D", str(work), "sh", "-c", tries, umask=0o027)
        assert share_memory(held.pid, held.stepd), "the test is about a task that shares it"
        status, said = held.let_go()
        assert status != 0, "its task cannot write there"
        assert (work / "here").exists()
        assert not (node.scratch / "there").exists()
        before, after = (
            dict(line.split(":\t", 1) for line in (node.scratch / f"{when}.status").read_text().splitlines())
            for when in ("before", "after")
        )
        assert {name: after[name] for name in OF_A_PROCESS} == {name: before[name] for name in OF_A_PROCESS}
        assert after["Uid"].split() == ["0"] * 4
        assert (after["Seccomp"], after["NoNewPrivs"], after["SigBlk"]) == ("0", "0", "0" * 16)
        assert int(after["CapEff"], 16) == int(after["CapPrm"], 16) != 0
        for of in ("limits", "cwd"):
            assert (node.scratch / f"after.{of}").read_text() == (node.scratch / f"before.{of}").read_text()
        record = node.record(node.last_job())
        assert (record["state"], record["exit_status"]) == ("FAILED", status), said
        node.assert_clean()
    finally:
        node.close()


def test_a_runner_that_is_kept_can_write_down_how_a_strict_step_ended(node: Node) -> None:
    for _ in range(2):  # the second one has the runner of the first
        step = node.popen("--secure=strict", "-D", str(node.scratch), "-n2", "sleep", "1000", user=NOBODY)
        wait_until(lambda: len(sleepers(node)) == 2, "its programs run")
        assert node.nodectl("cancel", str(node.last_job())).returncode == 0
        step.communicate(timeout=PATIENCE)
        assert node.record(node.last_job())["state"] == "CANCELLED"
        node.assert_clean()
    assert "save its record" not in node.logged()


def test_what_a_test_says_of_no_key_is_what_the_environment_says() -> None:
    """With NODECTL_TEST_FORKS=1 the whole ring is about forks: this is what shows that it is."""
    with running() as node:
        held = Held(node, "true")
        assert share_memory(held.pid, held.stepd) == (not FORKS)
        assert held.let_go() == (0, "")


def test_a_users_own_node_has_of_the_environment_what_others_have() -> None:
    with own_node() as node:
        fifo = node.home / "fifo"
        os.mkfifo(fifo)
        os.chown(fifo, NOBODY.pw_uid, NOBODY.pw_gid)
        step = node.popen("run", f"--input={fifo}", "true")
        wait_until(lambda: tasks_of(node), "the task is there")
        (task,) = tasks_of(node)
        assert share_memory(*task) == (not FORKS)
        fd = os.open(fifo, os.O_RDWR)
        assert step.communicate(timeout=PATIENCE) == ("", "")
        os.close(fd)
