"""Job containers under systemd: every kind of namespace, networks, and what has controllers only here."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.launch.container import LOCK
from vm import service
from vm.service import UNIT, Sleeper, wait_until

SERVICE = 'job_container_type = "job_container/namespace"\n'
KINDS = ("mnt", "pid", "ipc", "uts", "net", "cgroup", "time", "user")
MOST = 100  # processes
EVERYTHING = "--container-ns=pid,ipc,uts,net,cgroup,time,user"
BASE = Path("/var/lib/nodectl/containers")
HOST = "198.51.100.1"
BOMB = "x = bytearray(b'x') * (1 << 29)"
FORKS = """
import os, time
print(os.environ["SLURM_JOB_ID"], flush=True)
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.1)
"""
# Processes in sessions of their own, whose parent ends when it has told how many there are.
CROWD = """
import os, signal, sys
made = 0
for _ in range(1000):
    if os.fork() == 0:
        os.setsid()
        signal.pause()
    made += 1
print(made, flush=True)
os._exit(0)
"""


def configure(**values: object) -> None:
    """The service with containers and these keys, until the test is over."""
    lines = (f"{name} = {value!r}\n".replace("'", '"') for name, value in values.items())
    service.write_config(SERVICE + "".join(lines))
    service.systemctl("restart", UNIT)


@pytest.fixture(autouse=True)
def containers() -> Iterator[None]:
    """No test leaves a container."""
    before = mounts()
    yield
    service.end_steps()
    wait_until(lambda: not BASE.exists() or _names() <= {LOCK}, "the containers are removed")
    wait_until(lambda: not named("nodectl-first"), "first processes have ended")
    assert mounts() == before


def _names() -> set[str]:
    return {path.name for path in BASE.iterdir()}


def mounts() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line.split(" ", 2)[2] for line in lines if "/run/user/" not in line and "/run/credentials" not in line}


def named(name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text() == f"{name}\n":
                found.append(int(path.parent.name))
    return found


def out(*words: str, user: str = "alice") -> str:
    return service.nodectl("run", *words, user=user)


@pytest.mark.all
def test_every_kind_of_namespace_is_a_jobs_own_when_asked_for() -> None:
    paths = [f"/proc/self/ns/{kind}" for kind in KINDS]
    ours = [os.readlink(path) for path in paths]
    plain, own = (out(*words, "readlink", *paths).split() for words in ((), (EVERYTHING,)))
    assert [a == b for a, b in zip(ours, plain, strict=True)] == [False, *[True] * 7]
    assert [a == b for a, b in zip(ours, own, strict=True)] == [False] * 8


@pytest.mark.all
def test_private_directories_are_empty_and_leave_nothing() -> None:
    for path in ("/tmp", "/var/tmp", "/dev/shm"):
        assert out("sh", "-c", f"ls -A {path}; touch {path}/alices").strip() == ""
        assert not Path(path, "alices").exists()
    assert out(EVERYTHING, "sh", "-c", "cat /proc/1/comm; uname -n").split()[0] == "nodectl-first"


@pytest.mark.all
def test_users_and_groups_are_themselves_and_a_program_of_roots_gives_nothing() -> None:
    alice = pwd.getpwnam("alice")
    assert out("id") == out("--container-ns=user", "id")
    assert out("--container-ns=user", "cat", "/proc/self/uid_map").split() == [str(alice.pw_uid)] * 2 + ["1"]
    program = Path("/usr/local/bin/id-of-root")
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    try:
        said = {words: out(*words, "--secure=none", str(program), "-u").strip() for words in ((), (EVERYTHING,))}
        assert said == {(): "0", (EVERYTHING,): str(alice.pw_uid)}
    finally:
        program.unlink()
    assert service.run("nodectl", "run", EVERYTHING, "mount", "-t", "tmpfs", "none", "/mnt", user="alice").returncode


@contextlib.contextmanager
def parent(kind: str) -> Iterator[str]:
    """An interface that jobs are connected to, the machine at HOST beside it."""
    name, host = "ndt0", "ndt0" if kind == "veth" else "ndt1"
    words = ["type", "bridge"] if kind == "veth" else ["type", "veth", "peer", "name", host]
    for line in (["link", "add", name, *words], ["address", "add", f"{HOST}/24", "dev", host]):
        subprocess.run(["ip", *line], check=True)
    for one in (name, host):
        subprocess.run(["ip", "link", "set", one, "up"], check=True)
    try:
        yield name
    finally:
        subprocess.run(["ip", "link", "del", name], check=True)


@pytest.mark.all
@pytest.mark.parametrize("kind", ["veth", "macvlan"])
def test_a_network_of_a_jobs_own_is_connected_and_its_link_goes(kind: str) -> None:
    before = set(os.listdir("/sys/class/net"))
    with parent(kind) as name:
        configure(
            container_net=kind, container_net_parent=name,
            container_net_addresses="198.51.100.0/24", container_net_gateway=HOST,
        )  # fmt: skip
        program = (
            f"import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('{HOST}', 9)); "
            "print(s.getsockname()[0]); print(*sorted(name for _, name in socket.if_nameindex()))"
        )
        address, *names = out(EVERYTHING, "python3", "-c", program).split()
        assert address == "198.51.100.2"
        assert names == ["eth0", "lo"]
        with socket.create_server((HOST, 0)) as server:
            peer = server.getsockname()
            connect = f"import socket; socket.create_connection({peer}, 20); print('connected')"
            assert out("--container-ns=net", "python3", "-c", connect) == "connected\n"
        wait_until(lambda: _names() <= {LOCK}, "the containers are removed")
    assert set(os.listdir("/sys/class/net")) == before


@pytest.mark.all
def test_reload_is_for_jobs_to_come_and_leaves_running_ones_theirs() -> None:
    step = Sleeper("alice")
    ours = os.readlink("/proc/self/ns/uts")
    text = service.CONFIG.read_text()
    service.CONFIG.write_text(text + 'container_namespaces = ["uts"]\n')
    service.systemctl("reload", UNIT)
    assert out("readlink", "/proc/self/ns/uts").strip() != ours
    assert os.readlink(f"/proc/{step.task()}/ns/uts") == ours
    assert step.let_go() == (0, "ran\n", "")


@pytest.mark.all
def test_a_restarted_service_joins_the_namespaces_of_running_jobs() -> None:
    step = Sleeper("alice", 0, EVERYTHING)
    namespaces = [os.readlink(f"/proc/{step.task()}/ns/{kind}") for kind in KINDS if kind != "cgroup"]
    for act in ("restart", "kill"):
        if act == "kill":
            service.kill(service.main_pid())
            wait_until(service.is_active, "it is there again")
        else:
            service.systemctl(act, UNIT)
        paths = [f"/proc/self/ns/{kind}" for kind in KINDS if kind != "cgroup"]
        assert service.nodectl("enter", str(step.job), "readlink", *paths, user="alice").split() == namespaces
    assert step.let_go() == (0, "ran\n", "")


@pytest.mark.all
def test_everything_killed_leaves_nothing_of_a_container() -> None:
    step = Sleeper("alice", 0, EVERYTHING)
    runner, tasks = step.runner(), step.task()
    service.kill(service.main_pid(), service.forkserver(), runner, tasks)
    step.client.kill()
    step.client.communicate()
    wait_until(service.is_active, "it is there again")
    service.assert_clean()


def test_out_of_memory_in_every_namespace_is_told_and_is_the_jobs_own_affair() -> None:
    other = Sleeper("bob", 0, EVERYTHING)
    bombed = service.run("nodectl", "run", EVERYTHING, "--mem=64M", "python3", "-c", BOMB, user="alice")
    assert bombed.returncode == 1
    assert "out of memory: task 0: killed process" in bombed.stderr
    assert other.let_go() == (0, "ran\n", "")


def test_a_full_private_tmpfs_is_charged_to_its_job_and_goes_with_it() -> None:
    filled = service.run(
        "nodectl", "run", EVERYTHING, "--mem=64M", "sh", "-c", "head -c 200M /dev/zero > /dev/shm/full", user="alice"
    )
    assert filled.returncode != 0
    assert out("sh", "-c", "ls -A /dev/shm") == ""


@pytest.mark.all
def test_a_fork_bomb_is_held_at_its_limit_and_ends_with_its_job() -> None:
    configure(max_processes_per_step=MOST)
    other = Sleeper("bob")
    bomb = service.start(EVERYTHING, "python3", "-c", FORKS, user="alice")
    assert bomb.stdout is not None
    job = int(bomb.stdout.readline())
    group = service.CGROUPS / service.STEPS_GROUP[1:] / f"job_{job}/step_0/user"
    wait_until(lambda: int((group / "pids.current").read_text()) == MOST, "it has met its limit")
    assert out("echo", "served", user="bob") == "served\n"
    service.nodectl("signal", "-s", "KILL", str(job))
    assert service.finished(bomb)[0] == 128 + signal.SIGKILL
    assert other.let_go() == (0, "ran\n", "")


@pytest.mark.all
def test_a_thousand_processes_that_nobody_waits_for_end_with_their_job() -> None:
    configure(max_processes_per_step=2000)
    crowd = service.start("--container-ns=pid", "python3", "-c", CROWD, user="alice")
    assert crowd.communicate(timeout=300) == ("1000\n", "")  # an emulated machine forks slowly
    assert crowd.returncode == 0
    service.assert_clean()


@pytest.mark.all
def test_doctor_says_that_every_kind_can_be_made() -> None:
    lines = service.nodectl("doctor").splitlines()
    for kind in KINDS:
        assert any(line.startswith("ok") and f"{kind} namespace" in line for line in lines), kind
    assert any(line.startswith("ok") and "private directories" in line for line in lines)


def test_a_further_step_is_held_by_its_jobs_limits_and_does_not_change_them() -> None:
    step = Sleeper("alice", 0, "--mem=300M", "--pids-max=50")
    job = step.group.parent
    before = {path.name: path.read_text() for path in job.glob("*.max")}
    show = f"cat {job}/step_$SLURM_STEP_ID/user/memory.max"
    option = f"--jobid={step.job}"
    assert out(option, "--mem=100M", "sh", "-c", show) == f"{100 << 20}\n"
    assert out(option, "sh", "-c", f"{show}; cat {job}/step_$SLURM_STEP_ID/user/pids.max") == f"{300 << 20}\n50\n"
    bombed = service.run("nodectl", "run", option, "--mem=100M", "python3", "-c", BOMB, user="alice")
    assert bombed.returncode == 1
    assert "out of memory: task 0: killed process" in bombed.stderr
    assert {path.name: path.read_text() for path in job.glob("*.max")} == before
    service.systemctl("restart", UNIT)
    assert out(option, "sh", "-c", "echo $SLURM_STEP_ID") == "4\n"
    assert step.let_go() == (0, "ran\n", "")
