"""Open MPI's programs by --mpi=pmix, as they are: OpenPMIx's library serves them."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from needs import lacks_library
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from nodectl.mpi import openpmix
from rootful.contained import contained
from rootful.mpi_programs import OPEN_MPI, compiled
from rootful.node import OTHER, Node, running, wait_until

pytestmark = [pytest.mark.rootful, pytest.mark.skipif(lacks_library("libpmix.so.2"), reason="no libpmix here")]
ALONE = pwd.getpwnam("mail")  # no tests of other files run as this user, beside these
PLACES = (Path("/tmp"), Path("/dev/shm"))  # where MPI leaves files
SERVER = "nodectl-pmix"


BEFORE: set[str] = set()


@pytest.fixture(autouse=True, scope="module")
def _before() -> None:
    """Note what earlier runs of these tests have left."""
    BEFORE.update(left())


def left() -> list[str]:
    """What programs of this user have left."""
    found = []
    for path in [path for place in PLACES for path in place.iterdir()]:
        if path.name.startswith(("nodectl-mpi-", "ompi", "vader", "pmix")):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if path.lstat().st_uid == ALONE.pw_uid and str(path) not in BEFORE:
                    found.append(str(path))
    return found


def test_a_user_sees_no_option_to_be_needed(served: Node) -> None:
    done = served.run("-n2", compiled("cpi", served.dir, OPEN_MPI), user=ALONE)
    assert (done.stdout, done.returncode, done.stderr) == ("2 tasks: pi is 3.141593\n", 0, "")
    assert not left()


STRANGER = """
import socket, sys, time
owner, kept = sys.argv[1], []
def found():  # a socket of this owner that listens: proc(5)
    for row in open("/proc/net/tcp").read().splitlines()[1:]:
        _, address, _, state, _, _, _, uid, *_ = row.split()
        if state == "0A" and uid == owner and address.startswith("0100007F"):
            return int(address.rpartition(":")[2], 16)
while not (port := found()):
    pass
for _ in range(20):
    kept.append(socket.create_connection(("127.0.0.1", port)))
print("is there", flush=True)
sys.stdin.read()
"""


def test_strangers_who_connect_and_say_nothing_hold_up_no_step(served: Node) -> None:
    """They come as soon as the server listens, and stay."""
    words = [sys.executable, "-IS", "-c", STRANGER, str(ALONE.pw_uid)]
    there = served.scratch / "there"
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=OTHER.pw_uid, group=OTHER.pw_gid, extra_groups=[]
    ) as stranger:
        assert stranger.stdin is not None
        assert stranger.stdout is not None
        try:
            waits = f"while [ ! -e {there} ]; do sleep 0.02; done; exec {compiled('cpi', served.dir, OPEN_MPI)}"
            client = served.popen("-n2", "--mpi=pmix", "sh", "-c", waits, user=ALONE)
            assert stranger.stdout.readline() == b"is there\n"
            there.touch()
            out, said = client.communicate(timeout=60)
            assert (out, client.returncode) == ("2 tasks: pi is 3.141593\n", 0), said
        finally:
            stranger.kill()


@pytest.mark.parametrize("ntasks", [1, 2, 8])
def test_pi_is_the_same_for_any_number_of_tasks(served: Node, ntasks: int) -> None:
    done = served.run(f"-n{ntasks}", "--mpi=pmix", compiled("cpi", served.dir, OPEN_MPI), user=ALONE)
    assert (done.stdout, done.returncode) == (f"{ntasks} tasks: pi is 3.141593\n", 0), done.stderr
    assert not left()


def test_tasks_ask_for_what_no_fence_has_collected(served: Node) -> None:
    """By `pmix_base_async_modex`."""
    words = ("-n4", "--mpi=pmix", "--export=ALL,OMPI_MCA_pmix_base_async_modex=1")
    done = served.run(*words, compiled("cpi", served.dir, OPEN_MPI), user=ALONE)
    assert (done.stdout, done.returncode) == ("4 tasks: pi is 3.141593\n", 0), done.stderr


def test_each_pair_plays_ping_pong(served: Node) -> None:
    done = served.run("-n4", "--mpi=pmix", compiled("ping_pong", served.dir, OPEN_MPI), user=ALONE)
    assert set(done.stdout.splitlines()) == {f"task {rank} of 4: 11 rounds" for rank in range(4)}, done.stderr


def test_mpi_abort_ends_the_step_with_one_line_of_ours(served: Node) -> None:
    done = served.run("-n3", "--mpi=pmix", compiled("cpi", served.dir, OPEN_MPI), "7", user=ALONE)
    assert done.returncode == 128 + signal.SIGTERM
    ours = [line for line in done.stderr.splitlines() if "the step ends" in line]
    assert len(ours) == 1
    assert ours[0].endswith("task 1 called MPI_Abort with code 7: the step ends")
    assert not left()


def test_a_killed_task_ends_the_step(served: Node) -> None:
    mark = served.scratch / "pid"
    client = served.popen("-n3", "--mpi=pmix", compiled("waits", served.dir, OPEN_MPI), str(mark), user=ALONE)
    wait_until(lambda: mark.exists() and mark.read_text(), "task 0 waits")
    os.kill(int(mark.read_text()), signal.SIGKILL)
    _, said = client.communicate(timeout=60)
    assert client.returncode == 128 + signal.SIGTERM
    assert "task 0 was ended by signal 9 before MPI_Finalize: the step ends" in said
    assert not left()


@pytest.mark.parametrize("which", [0, 1])
def test_either_of_the_servers_processes_may_be_killed(served: Node, which: int) -> None:
    """One ends the step at once, the other one when it is noticed; neither leaves its directories."""
    mark = served.scratch / f"killed{which}"
    client = served.popen("-n2", "--mpi=pmix", compiled("waits", served.dir, OPEN_MPI), str(mark), user=ALONE)
    wait_until(lambda: mark.exists() and mark.read_text(), "task 0 waits")
    servers = sorted(pid for pid, name in served.processes() if name == SERVER)
    assert len(servers) == 2
    assert left()
    os.kill(servers[which], signal.SIGKILL)
    _, said = client.communicate(timeout=60)
    assert client.returncode == 128 + signal.SIGTERM
    assert "the step ends" in said
    wait_until(lambda: not left(), "directories are removed")


@pytest.mark.parametrize("suspended", [False, True])
def test_nothing_is_left_of_a_step_that_is_killed(suspended: bool) -> None:
    with running(suspend_grace_time=0) as node:
        mark = node.scratch / "pid"
        client = node.popen("-n2", "--mpi=pmix", compiled("waits", node.dir, OPEN_MPI), str(mark), user=ALONE)
        wait_until(lambda: mark.exists() and mark.read_text(), "task 0 waits")
        assert left()
        if suspended:
            assert node.nodectl("suspend", "1").returncode == 0
            cgroup = cgroup_of(int(mark.read_text())).rpartition("/")[0]
            wait_until(tree.Group(tree.find_mount() + cgroup).is_frozen, "the step stands still")
        assert node.nodectl("cancel", "--signal=KILL", "1").returncode == 0
        client.communicate(timeout=60)
        wait_until(lambda: not left(), "directories are removed")
        node.assert_clean()


def test_nothing_is_left_of_ten_steps_each_of_which_ends_otherwise(served: Node) -> None:
    program = compiled("cpi", served.dir, OPEN_MPI)
    for number in range(10):
        words = [program, "3"] if number % 5 == 4 else [program]
        served.run("-n2", "--mpi=pmix", *words, user=ALONE)
    served.assert_clean()
    assert not left()


@pytest.mark.parametrize("level", ["default", "strict"])
def test_tasks_find_each_other_when_they_are_confined(served: Node, level: str) -> None:
    done = served.run("-n2", "--mpi=pmix", f"--secure={level}", compiled("cpi", served.dir, OPEN_MPI), user=ALONE)
    assert done.stdout == "2 tasks: pi is 3.141593\n", done.stderr


def test_tasks_find_each_other_in_a_container() -> None:
    with contained(container_namespaces=["pid", "ipc"], container_dirs=["/var/tmp", "/dev/shm"]) as found:
        program = compiled("cpi", found.node.dir, OPEN_MPI)
        assert found.out("-n2", "--mpi=pmix", program) == "2 tasks: pi is 3.141593\n"


def test_a_user_who_does_not_know_a_steps_namespace_has_no_way_in(served: Node) -> None:
    done = served.run("-n2", "--mpi=pmix", "sh", "-c", "echo $PMIX_NAMESPACE", user=ALONE)
    first, second = done.stdout.split()
    assert first == second
    assert len(first.rpartition("-")[2]) == 32
    assert served.run("-n2", "--mpi=pmix", "sh", "-c", "echo $PMIX_NAMESPACE", user=ALONE).stdout.split()[0] != first


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openpmix, "_LIBRARIES", ("libnowhere.so.2",))
    with pytest.raises(openpmix.Failed, match=r"there is no libnowhere\.so\.2 \(OpenPMIx\)"):
        openpmix.Library()


LATE = """
from nodectl.model.mpi_server import MpiServer

plugin_type = "mpi/late"
plugin_name = "a server that cannot begin"
plugin_version = (22, 5, 8)
CODE = "import os, time; os.write(int(os.environ['NODECTL_MPI_WORDS']), b'failed no reason\\\\n'); time.sleep(600)"

def mpi_p_slurmstepd_prefork(step):
    step.mpi_server = MpiServer(["/usr/bin/python3", "-c", CODE], {}, announces=True)
"""


def test_a_server_that_cannot_begin_keeps_the_step_from_beginning() -> None:
    with running() as node:
        node.plugin("late", LATE, kind="mpi")
        node.configure(mpi_plugin=["mpi/none", "mpi/late"])
        node.restart()
        done = node.run("-n2", "--mpi=late", "echo", "begun", user=ALONE)
        assert (done.stdout, done.returncode) == ("", 1)
        assert "the server of mpi/late: it could not begin: no reason" in done.stderr
