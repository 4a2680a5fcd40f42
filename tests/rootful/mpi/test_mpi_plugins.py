"""A site's own MPI plugin: its functions, in the order of a launch, and what their failures cost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from rootful.node import NOBODY, Node, running, wait_until

PLUGIN = """
import os
from nodectl.plugin_api import PluginError

plugin_type = "mpi/{name}"
plugin_name = "for a test"
plugin_version = (22, 5, 8)

def _told(call):
    if os.path.exists({scratch!r} + "/fail-" + call):
        raise PluginError(22, "as it was told")

def mpi_p_client_prelaunch(step):
    _told("prelaunch")

def mpi_p_slurmstepd_prefork(step):
    _told("prefork")

def mpi_p_slurmstepd_task(step, task):
    task.environment["RANK_OF_{name}"] = f"{{task.local_id}} of {{step.ntasks}}"
    _told("task")

def mpi_p_client_fini(step):
    _told("fini")
"""
CALLS = ["mpi_p_client_prelaunch", "mpi_p_slurmstepd_prefork", *["mpi_p_slurmstepd_task"] * 2, "mpi_p_client_fini"]
SHOWN = ("sh", "-c", "env | grep ^RANK_OF_ | sort")


@pytest.fixture(scope="module")
def site() -> Iterator[Node]:
    node = Node(mpi_plugin=["mpi/none", "mpi/one", "mpi/other"])
    for name in ("one", "other"):
        node.plugin(name, PLUGIN.format(name=name, scratch=str(node.scratch)), kind="mpi")
    try:
        yield node.start()
        node.assert_clean()
    finally:
        node.close()


def test_the_functions_of_the_chosen_plugin_are_called_in_order(site: Node) -> None:
    done = site.run("-n2", "--mpi=one", *SHOWN, user=NOBODY)
    assert sorted(done.stdout.splitlines()) == ["RANK_OF_one=0 of 2", "RANK_OF_one=1 of 2"], done.stderr
    lines = [line for line in site.trace(site.last_job()) if line["kind"] == "mpi"]
    assert [line["call"] for line in lines] == CALLS
    assert {line["plugin"] for line in lines} == {"mpi/one"}


def test_none_is_called_for_a_step_without(site: Node) -> None:
    assert site.run("-n2", *SHOWN, user=NOBODY).stdout == ""
    assert not [line for line in site.trace(site.last_job()) if line["kind"] == "mpi"]


@pytest.mark.parametrize("call", ["prelaunch", "prefork", "task"])
def test_a_failure_before_the_tasks_keeps_them_from_beginning(site: Node, call: str) -> None:
    mark = site.scratch / f"fail-{call}"
    mark.touch()
    try:
        done = site.run("-n2", "--mpi=one", "echo", "begun", user=NOBODY)
    finally:
        mark.unlink()
    assert (done.stdout, done.returncode) == ("", 1)
    assert "plugin mpi/one (for a test): mpi_p_" in done.stderr
    assert "as it was told" in done.stderr


def test_a_failure_behind_them_is_logged(site: Node) -> None:
    mark = site.scratch / "fail-fini"
    mark.touch()
    try:
        done = site.run("-n2", "--mpi=one", "echo", "begun", user=NOBODY)
    finally:
        mark.unlink()
    assert (done.stdout, done.returncode) == ("begun\n" * 2, 0)


FLOOD = """
from nodectl.model.mpi_server import MpiServer

plugin_type = "mpi/flood"
plugin_name = "says what it likes"
plugin_version = (22, 5, 8)
CODE = '''
import os
words, end = int(os.environ["NODECTL_MPI_WORDS"]), bytes([10])
for line in ("abort", "abort x 1", "abort 99 1", "abort -1 1", "lost 1 1 1", "ready", "env LD_PRELOAD=/x", chr(255)):
    os.write(words, line.encode() + end)
while True:
    os.write(words, (b"spawn 1" + end) * 500)
'''

def mpi_p_slurmstepd_prefork(step):
    step.mpi_server = MpiServer(["/usr/bin/python3", "-c", CODE], {})
"""


def test_a_server_that_says_too_much_ends_its_step_and_is_told_once() -> None:
    with running() as node:
        node.plugin("flood", FLOOD, kind="mpi")
        node.configure(mpi_plugin=["mpi/none", "mpi/flood"])
        node.restart()
        done = node.run("-n2", "--mpi=flood", "sleep", "600", user=NOBODY)
        assert done.returncode == 143
        lines = [line for line in done.stderr.splitlines() if "step 1.0" in line]
        assert len(lines) == 2, lines
        assert lines[0].endswith("task 1 wanted MPI to start further programs, which a step does not")
        assert lines[1].endswith("its MPI server says too much: the step ends")


NESTED = """
from nodectl.model.mpi_server import MpiServer

plugin_type = "mpi/nested"
plugin_name = "kills tasks and talks about them"
plugin_version = (22, 5, 8)
CODE = '''
import os, signal, time
place, words, tasks = "SCRATCH", int(os.environ["NODECTL_MPI_WORDS"]), int(os.environ["NODECTL_MPI_TASKS"])
line = b"x" * 63 + bytes([10])
most = 131072 + tasks * 4096
for _ in range((most - 4 * 8192) // 64):
    os.write(words, line)
open(f"{place}/filled", "w").close()
while not os.path.exists(f"{place}/stopped"):
    time.sleep(0.01)
for rank in range(1, tasks):
    os.kill(int(open(f"{place}/pid-{rank}").read()), signal.SIGKILL)
os.set_blocking(words, False)
os.write(words, b"stuck 1" + bytes([10]) + line * 900)
open(f"{place}/said", "w").close()
time.sleep(600)
'''.replace("SCRATCH", "PLACE")

def mpi_p_slurmstepd_prefork(step):
    step.mpi_server = MpiServer(["/usr/bin/python3", "-c", CODE], {})
"""
_TASK = "echo $$ >PLACE/pid-$SLURM_PROCID.new; mv PLACE/pid-$SLURM_PROCID.new PLACE/pid-$SLURM_PROCID; exec sleep 600"


def test_a_server_that_talks_of_dead_tasks_and_too_much_at_once_does_not_take_the_step_runner_along() -> None:
    with running() as node:
        place = node.scratch
        node.plugin("nested", NESTED.replace("PLACE", str(place)), kind="mpi")
        node.configure(mpi_plugin=["mpi/none", "mpi/nested"])
        node.restart()
        task = _TASK.replace("PLACE", str(place))
        client = node.popen("-n6", "--mpi=nested", "sh", "-c", task, user=NOBODY)
        pids = [place / f"pid-{rank}" for rank in range(6)]
        wait_until(lambda: (place / "filled").exists() and all(pid.exists() for pid in pids), "tasks run")
        runner = int(Path(f"/proc/{int(pids[0].read_text())}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(runner, signal.SIGSTOP)  # so that it finds both at once
        try:
            (place / "stopped").touch()
            wait_until((place / "said").exists, "the server has spoken")
            wait_until(lambda: all(_is_dead(int(pid.read_text())) for pid in pids[1:]), "tasks have ended")
        finally:
            os.kill(runner, signal.SIGCONT)
        _, said = client.communicate(timeout=60)
        assert client.returncode == 128 + signal.SIGTERM
        assert said.count("the step ends") == 1
        assert node.record(1)["state"] == "FAILED"
        assert "Traceback" not in node.logged()


def _is_dead(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


NEVER = """
from nodectl.model.mpi_server import MpiServer

plugin_type = "mpi/never"
plugin_name = "never ready"
plugin_version = (22, 5, 8)

def mpi_p_slurmstepd_prefork(step):
    step.mpi_server = MpiServer(["/bin/sleep", "600"], {}, announces=True)
"""


def test_a_step_that_is_cancelled_while_its_server_begins_has_no_tasks() -> None:
    with running() as node:
        node.plugin("never", NEVER, kind="mpi")
        node.configure(mpi_plugin=["mpi/none", "mpi/never"])
        node.restart()
        client = node.popen("-n2", "--mpi=never", "echo", "begun", user=NOBODY)
        wait_until(lambda: any(name == "sleep" for _, name in node.processes()), "the server begins")
        assert node.nodectl("cancel", "1.0").returncode == 0
        out, _ = client.communicate(timeout=60)
        assert (out, client.returncode != 0) == ("", True)
        assert node.record(1)["state"] == "CANCELLED"
        assert not [line for line in node.trace(1) if line["call"] == "fork"]


SHORT = """
import os
import resource

from nodectl.model.mpi_server import MpiServer

plugin_type = "mpi/short"
plugin_name = "leaves the step runner few descriptors"
plugin_version = (22, 5, 8)

def mpi_p_slurmstepd_prefork(step):
    step.mpi_server = MpiServer(["/bin/sleep", "600"], {}, connected=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, most))
"""


def test_a_server_for_which_there_are_no_descriptors_keeps_the_step_from_beginning() -> None:
    with running() as node:
        node.plugin("short", SHORT, kind="mpi")
        node.configure(mpi_plugin=["mpi/none", "mpi/short"])
        node.restart()
        done = node.run("-n64", "--overcommit", "--mpi=short", "echo", "begun", user=NOBODY)
        assert (done.stdout, done.returncode != 0) == ("", True)
        assert "start the server of mpi/short: Too many open files" in done.stderr
        assert node.record(1)["state"] == "FAILED"


TAKEN = """
from nodectl.model.mpi_server import MpiServer

plugin_type = "mpi/taken"
plugin_name = "a server that its user has made execute something else"
plugin_version = (22, 5, 8)
CODE = '''
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
while True:
    with open(f"PLACE/tick-{os.getpid()}", "a") as file:
        file.write("x")
    time.sleep(0.01)
'''

def mpi_p_slurmstepd_prefork(step):
    step.mpi_server = MpiServer(["/usr/bin/python3", "-c", CODE], {})
"""


def test_what_a_user_runs_in_the_server_is_stopped_limited_and_killed_with_the_tasks() -> None:
    with running(suspend_grace_time=0) as node:
        place = node.scratch
        node.plugin("taken", TAKEN.replace("PLACE", str(place)), kind="mpi")
        node.configure(mpi_plugin=["mpi/none", "mpi/taken"])
        node.restart()
        client = node.popen("-n2", "--mpi=taken", "sleep", "600", user=NOBODY)
        wait_until(lambda: len(list(place.glob("tick-*"))) == 2, "both processes run")
        (cgroup,) = {cgroup_of(pid) for pid in _pids(place)}
        assert cgroup.endswith("/step_0/user/mpi")
        user = tree.Group(tree.find_mount() + os.path.dirname(cgroup))
        assert node.nodectl("suspend", "1").returncode == 0
        wait_until(user.is_frozen, "the step stands still")
        before = _ticks(place)
        assert node.nodectl("queue").returncode == 0  # time passes
        assert _ticks(place) == before
        assert node.nodectl("resume", "1").returncode == 0
        wait_until(lambda: all(now > then for now, then in zip(_ticks(place), before, strict=True)), "both go on")
        pids = _pids(place)
        assert node.nodectl("cancel", "1").returncode == 0
        client.communicate(timeout=60)
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        wait_until(lambda: not user.exists(), "its cgroups are removed")
        assert "cannot be removed" not in node.logged()
        node.assert_clean()


def _pids(place: Path) -> list[int]:
    return [int(path.name.rpartition("-")[2]) for path in place.glob("tick-*")]


def _ticks(place: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(place.glob("tick-*"))]
