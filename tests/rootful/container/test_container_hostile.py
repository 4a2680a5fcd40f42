"""A hostile user with a shell in a job's container: races, bombs, mounts, descriptors, other people's processes."""

from __future__ import annotations

import array
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nodectl.launch.container import LOCK
from rootful.contained import Contained, contained
from rootful.node import NOBODY, OTHER, wait_until

EVERYTHING = "--container-ns=user,pid,net,ipc,uts,cgroup,time"
WAIT = "echo ready; read x"
_MOUNT_POINT = 4  # of a line of mountinfo


@pytest.fixture(scope="module")
def shared() -> Iterator[Contained]:
    with contained() as found:
        yield found


@pytest.fixture
def clean(shared: Contained) -> Iterator[Contained]:
    """What the test's jobs were is gone at its end."""
    yield shared
    shared.assert_gone()
    shared.node.assert_clean()


def waiting(found: Contained, *words: str) -> subprocess.Popen[str]:
    """A job that has said "ready", and ends when it is told."""
    job = found.node.popen(*words, user=NOBODY, stdin=subprocess.PIPE)
    assert job.stdout is not None
    said = job.stdout.readline()
    assert said == "ready\n", (said, job.communicate())
    return job


def told(job: subprocess.Popen[str]) -> str:
    out, err = job.communicate("\n", timeout=60)
    assert job.returncode == 0, err
    return out


def test_who_locks_the_directory_of_all_containers_holds_nobody_up(clean: Contained) -> None:
    clean.out("true")  # the directory is there
    words = ["flock", "-Fx", str(clean.base), "sh", "-c", "echo locked; exec sleep 300"]
    stranger = subprocess.Popen(
        words, stdout=subprocess.PIPE, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[], text=True
    )
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "locked\n"
        assert clean.out("echo", "x") == "x\n"
        assert (clean.base / LOCK).stat().st_mode & 0o777 == 0o600
    finally:
        stranger.kill()
        stranger.communicate()


# Descriptors.


def outside(found: Contained, path: Path) -> tuple[subprocess.Popen[str], int]:
    """A job, and its /tmp as a descriptor that it gave to a process outside of it."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    path.chmod(0o777)
    server.listen()
    program = (
        "import array, os, socket, sys; channel = socket.socket(socket.AF_UNIX); channel.connect(sys.argv[1]); "
        "rights = array.array('i', [os.open('/tmp', os.O_RDONLY)]); "
        "channel.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]); print('ready', flush=True); "
        "sys.stdin.readline()"
    )
    job = waiting(found, "python3", "-c", program, str(path))
    channel, _ = server.accept()
    _, ancillary, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4))
    rights = array.array("i")
    rights.frombytes(ancillary[0][2])
    server.close()
    channel.close()
    path.unlink()
    return job, rights[0]


def test_a_kept_directory_is_empty_and_of_no_use_after_the_end(clean: Contained) -> None:
    job, kept = outside(clean, clean.node.scratch / "socket")
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=kept))
    told(job)
    clean.assert_gone()
    assert os.listdir(kept) == []
    with pytest.raises(FileNotFoundError):
        os.open("file", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=kept)
    os.close(kept)


def test_who_moves_directories_about_while_they_are_removed_moves_nothing_of_others(clean: Contained) -> None:
    victim = clean.node.scratch / "victim"
    victim.mkdir(mode=0o777)
    victim.chmod(0o777)
    (victim / "file").touch()
    os.chown(victim / "file", NOBODY.pw_uid, -1)
    for _ in range(3):
        job, kept = outside(clean, clean.node.scratch / "socket")
        build = "for a in 1 2 3 4 5 6 7 8; do mkdir -p $a/a/b/c/d/e/f; touch $a/a/b/c/d/e/f/{g,h,i}; done"
        swing = (
            f"cd /proc/self/fd/{kept} || exit; {build}; echo go; for n in $(seq 3000); do "
            f"mv 1/a/b 2/moved; ln -sfn {victim} 1/a/b; mv 2/moved/c 3/c; ln -sfn {victim} 2/moved; mkdir -p 1/a/b/c; "
            "done"
        )
        attacker = subprocess.Popen(
            ["bash", "-c", swing],
            user=NOBODY.pw_uid,
            pass_fds=[kept],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == b"go\n"
        told(job)
        try:
            clean.assert_gone()
        finally:
            attacker.kill()
            attacker.communicate()
        os.close(kept)
        assert [path.name for path in victim.iterdir() if path.name != "c"] == ["file"]
    subprocess.run(["rm", "-r", str(victim)], check=True)


def test_a_job_that_has_every_descriptor_open_ends_as_any_other(clean: Contained) -> None:
    program = """
import os, sys
fds = []
try:
    while True:
        fds.append(os.open("/tmp", os.O_RDONLY))
except OSError as error:
    os.write(1, b"ready\\n")
os.read(0, 1)
"""
    job = waiting(clean, EVERYTHING, "python3", "-c", program)
    name = str(clean.node.last_job())
    assert clean.node.nodectl("enter", name, "true", user=NOBODY).returncode == 0
    told(job)


# Processes.


def test_a_fork_bomb_in_a_pid_namespace_ends_with_its_job(clean: Contained) -> None:
    # As many as the user may have: there is no controller of processes on every machine that runs this test.
    bomb = "ulimit -u 400; echo ready; b() { b | b & }; b 2>/dev/null; while :; do b 2>/dev/null; sleep 0.1; done"
    job = clean.node.popen(EVERYTHING, "bash", "-c", bomb, user=OTHER)
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    wait_until(lambda: len(clean.node.processes()) > 100, "it has spread")
    assert clean.node.nodectl("signal", "-s", "KILL", str(clean.node.last_job())).returncode == 0
    job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGKILL


def test_a_thousand_processes_end_with_their_job(clean: Contained) -> None:
    program = """
import os, signal, sys
for _ in range(1000):
    if os.fork() == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
        signal.sigwait([signal.SIGUSR1])
print("ready", flush=True)
sys.stdin.readline()
os._exit(0)
"""
    job = waiting(clean, "--container-ns=pid", "python3", "-c", program)
    assert len(clean.node.processes()) > 1000
    told(job)


TRACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for name in sys.argv[1:]:
    for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
        result = libc.ptrace(request, int(name), None, None)
        print(name, request, result, os.strerror(ctypes.get_errno()))
    for path in ("mem", "environ", "root/etc/passwd", "fd"):
        try:
            os.open(f"/proc/{name}/{path}", os.O_RDONLY)
            print(name, path, "opened")
        except OSError as error:
            pass
    for number in (9, 15, 19):
        try:
            os.kill(int(name), number)
            print(name, number, "sent")
        except PermissionError:
            pass
"""


def test_nobody_elses_process_can_be_traced_read_or_signalled(clean: Contained) -> None:
    others = clean.node.popen("sh", "-c", f"echo $$; {WAIT}", user=OTHER, stdin=subprocess.PIPE)
    assert others.stdout is not None
    task = int(others.stdout.readline())
    assert others.stdout.readline() == "ready\n"
    assert clean.node.daemon is not None
    stepd = psutil.Process(task).ppid()  # a runner that waits for its next step may end meanwhile
    children = psutil.Process(clean.node.daemon.pid).children()
    [forkserver] = [child.pid for child in children if child.name() == "nodectl-fork"]
    victims = [task, stepd, forkserver, clean.node.daemon.pid]
    said = clean.out("python3", "-c", TRACE, *map(str, victims)).splitlines()
    assert len(said) == 2 * len(victims)
    assert all(line.endswith("-1 Operation not permitted") for line in said), said
    said = clean.out(EVERYTHING, "python3", "-c", TRACE, "1").splitlines()  # the first of its own
    assert [line.split()[2] for line in said if "sent" not in line and "opened" not in line] == ["-1", "-1"], said
    assert [line for line in said if "opened" in line] == []
    told(others)


def test_a_signal_to_everybody_reaches_ones_own_only(clean: Contained) -> None:
    bystander = waiting(clean, "sh", "-c", WAIT)
    done = clean.node.run("--container-ns=pid", "sh", "-c", "sleep 1000 & kill -9 -1; exit 3", user=NOBODY)
    assert done.returncode in (3, 128 + signal.SIGKILL)
    assert told(bystander) == ""


# Mounts.


@pytest.mark.parametrize("kinds", ["--container-ns=ipc", EVERYTHING])
def test_what_a_user_mounts_in_a_namespace_of_their_own_is_not_outside_and_goes(clean: Contained, kinds: str) -> None:
    name = clean.node.dir.name
    script = f"""
        mkdir /tmp/{name} /tmp/over
        exec unshare --user --map-root-user --mount --propagation private sh -c '
            mount -t tmpfs {name} /tmp/{name} && touch /tmp/{name}/mine
            mount --bind / /tmp/over
            mount -t tmpfs {name} /var/tmp
            (sleep 1000; : {name}) &
            {WAIT}'
    """
    job = waiting(clean, kinds, "sh", "-c", script)
    mounts = (line.split()[_MOUNT_POINT] for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines())
    assert not [mount for mount in mounts if name in mount and "/tmp/" in mount]
    told(job)
    clean.assert_gone()


def test_a_device_made_or_a_program_of_roots_in_a_private_directory_is_not_one(clean: Contained) -> None:
    script = """
        unshare --user --map-root-user sh -c 'mknod /tmp/sda b 8 0' 2>/dev/null && echo made
        cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id; unshare --user --map-root-user /tmp/id -u; /tmp/id -u
    """
    assert clean.out("sh", "-c", script).split() == ["0", str(NOBODY.pw_uid)]


def test_nothing_leaves_by_way_of_proc(clean: Contained) -> None:
    """The host's /tmp is seen through no process of the job's own and of nobody else's."""
    marker = Path("/tmp") / clean.node.dir.name
    marker.touch()
    try:
        script = f"for p in /proc/[0-9]*; do [ -e $p/root/tmp/{marker.name} ] && echo $p; done; ls /proc/self/cwd/.. -d"
        assert f"{clean.node.dir}" not in clean.out("--container-ns=pid", "sh", "-c", script)
        said = clean.out("--container-ns=pid", "sh", "-c", script).split()
        assert not [word for word in said if word.startswith("/proc/") and word[6:].isdecimal()]
    finally:
        marker.unlink()
