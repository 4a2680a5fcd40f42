"""A client's streams may never close. Then processes of its user's wait for that, and none of root's.

The file system of these tests writes late and does not answer a write. Whoever has the last copy of a descriptor waits
for it with no signal, where another descriptor was written to after the first one's close(2).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful import raw
from rootful.fuse import unwritten_file
from rootful.hostile import as_user
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until

pytestmark = [
    pytest.mark.rootful,
    pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no file systems in user space here"),
]

HOLDS = """
import os, time
from nodectl.spank import *
def slurm_spank_HOOK(spank, ac, argv):
    if spank_remote(spank) == 1 and os.path.exists(FLAG):
        open(FLAG + ".there", "w").write(f"{os.getpid()}\\n")
        while os.path.exists(FLAG):
            time.sleep(0.01)
    return RETURN
"""

MPI = """
import os, sys, time
from nodectl.model.mpi_server import MpiServer
from nodectl.plugin_api import PluginError

SENDS = '''
import os, socket
fd = os.open(FILE, os.O_RDWR)
for number in os.environ["NODECTL_MPI_SOCKETS"].split(","):
    socket.send_fds(socket.socket(fileno=int(number)), [b"x"], [fd])
os.close(fd)
open(FLAG + ".sent", "w").close()
os.read(int(os.environ["NODECTL_MPI_LIFE"]), 1)
'''

def mpi_p_slurmstepd_prefork(step):
    step.mpi_server = MpiServer([sys.executable, "-IS", "-c", SENDS], {}, connected=True)

def mpi_p_slurmstepd_task(step, task):
    while os.path.exists(FLAG):
        time.sleep(0.01)
    raise PluginError(22, "as it was told")
"""


@pytest.fixture
def file(node: Node) -> Iterator[Path]:
    path = node.scratch / "file"
    with unwritten_file(path):
        yield path
    node.assert_clean()


class Hook:
    """A plugin's hook that lasts as long as the test wants, in the step runner."""

    def __init__(self, node: Node, name: str, returns: int) -> None:
        self._flag = node.scratch / "hold"
        self._there = node.scratch / "hold.there"
        self._flag.touch()
        text = HOLDS.replace("FLAG", repr(str(self._flag))).replace("HOOK", name).replace("RETURN", str(returns))
        node.plugin("holds", text)
        node.plugstack("required holds.py\n")

    def has_begun(self) -> bool:
        return self._there.exists() and self._there.read_text().endswith("\n")

    @property
    def pid(self) -> int:
        """Of the step runner."""
        return int(self._there.read_text())

    def let_go(self) -> None:
        self._flag.unlink()


def holders(path: Path) -> set[int]:
    """Processes that have the file open."""
    found = set()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{name}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{name}/fd/{fd}") == str(path):
                        found.add(int(name))
    return found


@contextlib.contextmanager
def launched(node: Node, path: Path, **request: object) -> Iterator[None]:
    """A step whose streams are the file, of a client that holds it no more."""

    def act() -> None:
        fd = os.open(path, os.O_RDWR)
        sock = raw.connect(node)
        socket.send_fds(sock, [raw.launch(**request)], [fd] * 3)
        os.close(fd)
        sock.detach()

    with as_user(act):
        yield


@contextlib.contextmanager
def written_to(path: Path) -> Iterator[None]:
    """The file has unwritten pages from now on."""

    def act() -> None:
        os.pwrite(os.open(path, os.O_RDWR), bytes(4096), 0)

    with as_user(act):
        yield


def roots(node: Node) -> list[str]:
    """Root's processes of steps."""
    found = []
    for pid, name in node.processes():
        with contextlib.suppress(OSError):
            if "Uid:\t0\t" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8"):
                found.append(f"{pid} {name}")
    return found


def ended(node: Node) -> bool:
    return not node.call("List")["steps"]


def test_streams_that_no_task_has_taken_are_not_closed_by_root(node: Node, file: Path) -> None:
    hook = Hook(node, "init", -1)
    with launched(node, file):
        wait_until(hook.has_begun, "the step runner is in the hook")
        wait_until(lambda: not holders(file), "the streams are on their way")
        with written_to(file):
            hook.let_go()
            wait_until(lambda: ended(node), "the step has ended")
            wait_until(lambda: not roots(node), "no process of root's is left of the step")
    assert node.record(node.last_job())["state"] == "FAILED"


def test_streams_that_stay_for_a_relay_are_not_closed_by_root(node: Node, file: Path) -> None:
    hook = Hook(node, "exit", 0)
    with launched(node, file, label=True):
        wait_until(hook.has_begun, "the step is over, but for the hook")
        wait_until(lambda: not holders(file), "the process that copied them has ended")
        with written_to(file):
            hook.let_go()
            wait_until(lambda: ended(node), "the step has ended")
            wait_until(lambda: not roots(node), "no process of root's is left of the step")
    assert node.record(node.last_job())["state"] == "COMPLETED"


def test_the_end_of_a_step_runner_is_seen_that_was_killed_and_hangs_in_the_streams(node: Node, file: Path) -> None:
    hook = Hook(node, "init", -1)
    with launched(node, file):
        wait_until(hook.has_begun, "the step runner is in the hook")
        wait_until(lambda: not holders(file), "the streams are on their way")
        with written_to(file):
            os.kill(hook.pid, signal.SIGKILL)
            wait_until(lambda: ended(node), "the step has ended")
    assert node.record(node.last_job())["state"] == "NODE_FAIL"


def test_streams_do_not_leave_their_user_before_a_step_runner_has_them(node: Node, file: Path) -> None:
    """The forkserver would close them where it cannot fork one, and with them everybody's launches would stop."""
    hook = Hook(node, "exit", 0)  # with a plugin no runner serves the step that is there already
    hook.let_go()
    (forkserver,) = node.service("nodectl-fork")
    os.kill(forkserver, signal.SIGSTOP)
    try:
        with launched(node, file):
            wait_until(lambda: list(Path(node.base).glob("job_*/step_*")), "the step has been ordered")
            (step,) = Path(node.base).glob("job_*/step_*")
            with written_to(file):
                for directory, _, _ in os.walk(step, topdown=False):
                    os.rmdir(directory)
                (step.parent / "cgroup.max.descendants").write_text("0")
                os.kill(forkserver, signal.SIGCONT)
                done = node.run("true", user=OTHER)
                assert done.returncode == 0, done.stderr
        reason = str(node.record(node.last_job() - 1)["reason"])
        assert "start a step runner" in reason, reason
    finally:
        os.kill(forkserver, signal.SIGCONT)


def test_what_an_mpi_server_sends_to_tasks_that_never_begin_is_not_closed_by_root() -> None:
    """Its user can make it execute anything."""
    node = Node(mpi_plugin=["mpi/none", "mpi/sends"])
    flag, path = node.scratch / "hold", node.scratch / "file"
    text = MPI.replace("FILE", repr(repr(str(path)))[1:-1]).replace("FLAG", repr(str(flag)))
    node.plugin("sends", text, kind="mpi")
    flag.touch()
    try:
        node.start()
        with unwritten_file(path):
            client = node.popen("-n2", "--mpi=sends", "true", user=NOBODY)
            wait_until((node.scratch / "hold.sent").exists, "the server has sent the file to each task")
            wait_until(lambda: not holders(path), "it is on its way")
            with written_to(path):
                flag.unlink()
                client.communicate(timeout=PATIENCE)
                wait_until(lambda: ended(node), "the step has ended")
                wait_until(lambda: not roots(node), "no process of root's is left of the step")
        node.assert_clean()
    finally:
        node.close()
