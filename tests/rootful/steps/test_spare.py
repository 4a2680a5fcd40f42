"""The stepd that is forked ahead of need: which steps it serves, and that it is then as one forked for its step."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.launch.forkserver.spare import WAITING
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_until

MARK = 12345  # signals that may wait: a limit that nothing else sets, and that a process hands on
PLUGIN = """
import os, resource
def slurm_spank_init(spank, *arguments):
    limit = resource.getrlimit(resource.RLIMIT_SIGPENDING)[0]
    group = [line for line in open("/proc/self/cgroup") if "job_" in line or line.startswith("0::")][-1].strip()
    with open({path!r}, "w") as file:
        file.write(f"{word} {{limit}} {{os.getpid()}} {{group}}")
    return 0
"""
MOVED = """
import os, signal, socket, sys, threading
from nodectl.kernel import _kernel
group = os.open(sys.argv[1], os.O_RDONLY)
reader, writer = os.pipe()
ours, theirs = socket.socketpair()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
kept, parent, first = ["memory"], os.getpid(), os.fork()
if first == 0:
    before = os.getpid()
    _kernel.move_into(group, theirs.fileno())
    os.close(reader)
    child = os.fork()
    if child == 0:
        os._exit(7)
    said = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    thread = threading.Thread(target=said.append, args=["thread"])
    thread.start()
    thread.join()
    said += kept
    said += [os.getpid() != before, os.path.exists(f"/proc/{before}/exe"), os.getppid() == parent]
    said += [ours.recv(64) == b"%d" % os.getpid()]
    said += [signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR2}]
    with open("/proc/self/cgroup") as lines:
        said += [any(line.strip().endswith("/" + os.path.basename(sys.argv[1])) for line in lines)]
    os.write(writer, repr(said).encode())
    os._exit(0)
os.close(writer)
sys.stdout.write(os.read(reader, 4096).decode())
os.waitpid(first, 0)
sys.stdout.write(f" {os.waitstatus_to_exitcode(os.wait()[1])}")
"""


@pytest.fixture
def node() -> Iterator[Node]:
    with running() as one:
        yield one


def stack(node: Node, word: str) -> Path:
    """A plugin that tells what process its stepd is, and `word`. The file in which it does."""
    told = node.scratch / "told"
    node.plugin("tells", PLUGIN.format(path=str(told), word=word))
    node.plugstack("required tells.py\n")
    return told


def spares(node: Node) -> list[int]:
    """Processes of that name where they wait."""
    found = []
    where = Path(f"{node.base}/runners/cgroup.procs")
    for pid in where.read_text(encoding="ascii").split() if where.exists() else ():
        try:
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == WAITING:
                found.append(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def run(node: Node, *words: str) -> None:
    done = node.run(*words, "true", user=NOBODY)
    assert done.returncode == 0, done.stderr


def marked_spare(node: Node) -> int:
    """Runs steps until there is a spare for the next one, and gives it the mark."""
    while True:
        run(node)
        for pid in spares(node):
            try:
                resource.prlimit(pid, resource.RLIMIT_SIGPENDING, (MARK, MARK))
            except ProcessLookupError:
                continue
            return pid


def test_the_spare_serves_the_next_step_in_that_ones_cgroup(node: Node) -> None:
    told = stack(node, "one")

    def is_served() -> bool:
        spare = marked_spare(node)
        run(node)
        _, limit, pid, group = told.read_text(encoding="utf-8").split(maxsplit=3)
        job = node.last_job()
        assert group.endswith(f"/job_{job}/step_0/stepd"), group
        assert pid in {str(line["pid"]) for line in node.trace(job) if line["process"] == "stepd"}
        assert not Path(f"/proc/{spare}/exe").exists(), "it goes on under another number, or has been let go"
        return limit == str(MARK)

    wait_until(is_served, "a step that a spare has served")
    node.assert_clean()


def test_a_spare_that_was_killed_costs_nothing(node: Node) -> None:
    told = stack(node, "one")
    os.kill(marked_spare(node), signal.SIGKILL)
    run(node)
    assert told.read_text(encoding="utf-8").split()[1] != str(MARK)
    node.assert_clean()


def test_a_changed_plugin_is_called_in_no_spare_of_before(node: Node) -> None:
    stack(node, "one")
    marked_spare(node)
    told = stack(node, "two")
    run(node)
    word, limit, *_ = told.read_text(encoding="utf-8").split()
    assert word == "two"
    assert limit != str(MARK)


def test_a_step_that_is_confined_otherwise_gets_no_spare(node: Node) -> None:
    told = stack(node, "one")
    marked_spare(node)
    run(node, "--secure=strict")
    assert told.read_text(encoding="utf-8").split()[1] != str(MARK)


def test_a_job_whose_cgroup_lets_nothing_run_keeps_the_forkserver_from_nobody(node: Node) -> None:
    """With a small share of the CPUs and much work its user has such a one. Here it is frozen: it lets nothing run."""
    node.plugin("quiet", "def slurm_spank_init(*_):\n    return 0\n")
    node.plugstack("required quiet.py\n")
    first = node.popen("--overlap", "sleep", "1000", user=NOBODY)
    wait_until(lambda: any("sleep" in name for _, name in node.processes()), "the job runs")
    job = node.last_job()
    frozen = Path(f"{node.base}/job_{job}/cgroup.freeze")
    marked_spare(node)
    frozen.write_text("1", encoding="ascii")
    try:
        second = node.popen(f"--jobid={job}", "--overlap", "true", user=NOBODY)
        wait_until(lambda: "1" in {str(step["step"]) for step in node.call("List")["steps"]}, "the service has it")  # type: ignore[attr-defined]
        assert node.run("true", user=OTHER).returncode == 0, "its stepd is asked for behind the other one"
        ended = second.poll()
    finally:
        frozen.write_text("0", encoding="ascii")
        complaint = second.communicate(timeout=PATIENCE)[1]
        first.terminate()
        first.communicate(timeout=PATIENCE)
    assert (ended, second.returncode) == (None, 0), complaint
    node.assert_clean()


def test_the_spare_ends_with_the_forkserver(node: Node) -> None:
    stack(node, "one")
    marked_spare(node)
    node.stop()
    assert not Path(node.base).exists()


def test_a_process_of_whose_new_number_nobody_learns_does_not_go_on(node: Node) -> None:
    """Who waits for it has given up, or has ended, and another process may do its work."""
    group = Path(f"{node.base}/moved")
    group.mkdir()
    try:
        code = MOVED.replace("    _kernel.move_into", "    ours.close()\n    _kernel.move_into").replace(
            "\nos.close(writer)\n", "\nos.close(writer)\nours.close()\n"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, str(group)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == " 1", done.stderr
    finally:
        wait_until(lambda: not Path(group, "cgroup.procs").read_text(encoding="ascii"), "it has left the cgroup")
        group.rmdir()


def test_a_process_that_goes_on_in_another_cgroup_is_whole(node: Node) -> None:
    group = Path(f"{node.base}/moved")
    group.mkdir()
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", MOVED, str(group)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == "[7, 'thread', 'memory', True, False, True, True, True, True] 0", done.stderr
    finally:
        wait_until(lambda: not Path(group, "cgroup.procs").read_text(encoding="ascii"), "it has left the cgroup")
        group.rmdir()
