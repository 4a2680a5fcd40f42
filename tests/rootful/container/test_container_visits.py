"""nodectl enter and nodectl bcast: into a running job's container, as its user, by who may."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.contained import Contained, contained
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until


class Job:
    """A job that waits."""

    def __init__(self, found: Contained, *words: str) -> None:
        self.node = found.node
        script = "echo inside > /tmp/here; echo ready; sleep 60"
        self.client = self.node.popen(*words, "sh", "-c", script, user=NOBODY)
        assert self.client.stdout is not None
        assert self.client.stdout.readline() == "ready\n"
        self.name = str(self.node.last_job())

    def enter(self, *words: str, user: pwd.struct_passwd | None = NOBODY) -> subprocess.CompletedProcess[str]:
        return self.node.nodectl("enter", self.name, *words, user=user)

    def bcast(self, *words: str, user: pwd.struct_passwd | None = NOBODY) -> subprocess.CompletedProcess[str]:
        return self.node.nodectl("bcast", "--job", self.name, *words, user=user)

    def end(self) -> None:
        self.node.nodectl("signal", "-s", "KILL", self.name)
        self.client.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def shared() -> Iterator[Contained]:
    with contained() as found:
        yield found


@pytest.fixture
def job(shared: Contained) -> Iterator[Job]:
    made = Job(shared)
    yield made
    made.end()


@pytest.mark.parametrize("user", [NOBODY, None])
def test_its_user_and_root_enter_as_its_user(job: Job, user: pwd.struct_passwd | None) -> None:
    done = job.enter("sh", "-c", "cat /tmp/here; id -u; id -G; echo $SLURM_JOB_ID; pwd; exit 7", user=user)
    uid, gid = str(NOBODY.pw_uid), str(NOBODY.pw_gid)
    assert done.stdout.split() == ["inside", uid, gid, job.name, str(job.node.scratch)], done.stderr
    assert done.returncode == 7


def test_others_may_not_enter_nor_write(job: Job) -> None:
    for done in (job.enter("true", user=OTHER), job.bcast("/etc/hostname", "/tmp/x", user=OTHER)):
        assert done.returncode == 1
        assert f"no step {job.name}.0 is running or in the history" in done.stderr


def test_nothing_of_roots_reaches_who_was_entered(job: Job) -> None:
    words = ["sh", "-c", "ls /proc/self/fd; env; grep Cap /proc/self/status"]
    done = job.node.nodectl("enter", job.name, *words, env={"ROOTS_SECRET": "x", "LD_PRELOAD": "/nonexistent.so"})
    assert done.stdout.split()[:4] == ["0", "1", "2", "3"]
    assert "ROOTS_SECRET" not in done.stdout
    assert "LD_PRELOAD" not in done.stdout
    assert "CapEff:\t0000000000000000" in done.stdout


def test_who_entered_ends_with_the_step(job: Job) -> None:
    visitor = subprocess.Popen(
        job.node.command("enter", job.name, "sh", "-c", "echo ready; trap '' HUP TERM; sleep 60"),
        stdout=subprocess.PIPE, text=True, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[],
    )  # fmt: skip
    assert visitor.stdout is not None
    assert visitor.stdout.readline() == "ready\n"
    job.end()
    assert visitor.wait(PATIENCE) == 128 + signal.SIGKILL
    job.node.assert_clean()


def test_the_visitor_of_a_command_that_is_killed_is_ended(job: Job) -> None:
    visitor = subprocess.Popen(
        job.node.command("enter", job.name, "sh", "-c", "echo $$; sleep 60"), stdout=subprocess.PIPE, text=True
    )
    assert visitor.stdout is not None
    pid = int(visitor.stdout.readline())
    visitor.kill()
    visitor.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "it has ended")


def test_at_a_terminal_a_shell_has_a_terminal_of_its_own_and_job_control(job: Job) -> None:
    ours, theirs = os.openpty()
    shell = subprocess.Popen(
        job.node.command("enter", job.name, "bash", "--norc", "-i"), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    os.write(ours, b"tty; echo $((6*7)); cat /tmp/here; exit 5\n")
    with contextlib.suppress(OSError):  # everything is read, and nobody has the other end any more
        while select.select([ours], [], [], PATIENCE)[0]:
            said += os.read(ours, 4096)
    assert shell.wait(PATIENCE) == 5, said
    assert b"42" in said
    assert b"inside" in said
    assert b"no job control" not in said
    os.close(ours)


@pytest.mark.parametrize("words", [(), ("--container-ns=pid,net,uts,ipc,cgroup,user",)])
def test_entering_joins_every_namespace(shared: Contained, words: tuple[str, ...]) -> None:
    made = Job(shared, *words)
    try:
        kinds = [f"/proc/self/ns/{kind}" for kind in ("mnt", "pid", "ipc", "uts", "net", "user")]
        inside = made.enter("readlink", *kinds).stdout.split()
        assert inside == made.enter("readlink", *kinds).stdout.split()
        ours = [os.readlink(kind) for kind in kinds]
        assert [a == b for a, b in zip(inside, ours, strict=True)] == [False, *[not words] * 5]
        comm = made.enter("cat", "/proc/1/comm").stdout.strip()
        assert (comm == "nodectl-first") == bool(words)
    finally:
        made.end()


def test_bcast_writes_into_the_container_only_whole_and_as_its_user(job: Job) -> None:
    source = job.node.scratch / "source"
    source.write_bytes(os.urandom(3_000_000))
    source.chmod(0o755)
    outside = f"/tmp/{job.node.dir.name}"
    done = job.bcast(str(source), outside)
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(outside)
    check = job.enter("sh", "-c", f"cmp {outside} {source} && stat -c '%a %u' {outside}; ls -A /tmp")
    assert check.stdout.split()[:2] == ["755", str(NOBODY.pw_uid)]
    assert sorted(check.stdout.split()[2:]) == ["here", job.node.dir.name]
    again = job.bcast(str(source), outside)
    assert again.returncode == 1
    assert again.stderr.endswith(f": {outside}: File exists; --force replaces it (as nobody)\n")
    source.write_text("new", encoding="utf-8")
    os.utime(source, ns=(1_000_000_000, 2_000_000_000))
    assert job.bcast("--force", "--preserve", str(source), outside).returncode == 0
    assert job.enter("cat", outside).stdout == "new"
    assert job.enter("stat", "-c", "%Y", outside).stdout == "2\n"
    source.unlink()


@pytest.mark.parametrize("words", [(), ("--container-ns=pid",)])
def test_bcast_that_is_killed_leaves_nothing(shared: Contained, words: tuple[str, ...]) -> None:
    job = Job(shared, *words)
    place = job.node.scratch / "place"
    place.mkdir()
    place.chmod(0o777)
    with (job.node.scratch / "endless").open("wb") as source:
        source.truncate(1 << 40)
    try:
        command = job.node.command("bcast", "--job", job.name, source.name, f"{place}/x")
        client = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(lambda: _has_written(job.node), "some of it is written")
        client.kill()
        client.wait(PATIENCE)
        wait_until(lambda: not _visitors(job.node), "nobody writes")
        assert list(place.iterdir()) == []
    finally:
        job.end()
        os.unlink(source.name)
        shutil.rmtree(place)


def _visitors(node: Node) -> list[int]:
    lists = Path(node.base).glob("job_*/step_0/user/visitors/cgroup.procs")
    return [int(pid) for path in lists for pid in path.read_text(encoding="ascii").split()]


def _has_written(node: Node) -> bool:
    for pid in _visitors(node):
        with contextlib.suppress(OSError):  # who only comes to make the one that writes
            count = Path(f"/proc/{pid}/io").read_text(encoding="ascii").partition("wchar: ")[2].partition("\n")[0]
            if int(count) > 1 << 22:
                return True
    return False


def test_bcast_cannot_write_where_its_user_could_not_and_leaves_nothing(job: Job) -> None:
    for place, words in (("/etc/x", "Permission denied"), ("/nonexistent/x", "No such file or directory")):
        done = job.bcast("/etc/hostname", place, user=None)  # root asks, and yet
        assert done.returncode == 1
        assert words in done.stderr
        assert "as nobody" in done.stderr
    assert job.enter("ln", "-s", "/etc", "/tmp/link").returncode == 0
    assert "Permission denied" in job.bcast("/etc/hostname", "/tmp/link/x", user=None).stderr
    for evil in ("/dev/null", str(job.node.scratch)):
        assert "regular file" in job.bcast(evil, "/tmp/x").stderr


def test_a_suspended_job_is_not_entered(job: Job) -> None:
    assert job.node.nodectl("suspend", job.name, user=NOBODY).returncode == 0
    for visited in (job.enter("true"), job.bcast("/etc/hostname", "/tmp/x")):
        assert visited.returncode == 1
        assert visited.stderr.endswith(f"step {job.name}.0 is suspended; resume it first\n")
    assert job.node.nodectl("resume", job.name, user=NOBODY).returncode == 0
    assert job.enter("true").returncode == 0


def test_a_job_that_is_not_running_is_not_entered(shared: Contained) -> None:
    assert shared.node.run("true", user=NOBODY).returncode == 0
    done = shared.node.nodectl("enter", str(shared.node.last_job()), "true", user=NOBODY)
    assert done.returncode == 1
    assert done.stderr == f"nodectl: error: step {shared.node.last_job()}.0 has ended: COMPLETED\n"
    done = shared.node.nodectl("enter", "4000000", "true", user=NOBODY)
    assert done.returncode == 1
    assert done.stderr.startswith("nodectl: error: no step 4000000.0 is running or in the history -> ")
