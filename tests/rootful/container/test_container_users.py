"""--container-ns=user: who is who in a job's user namespace, what gives no power there, and who stays out of it."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.contained import Contained, contained
from rootful.node import OTHER, PATIENCE

NS_GET_USERNS = 0xB701  # ioctl_ns(2)
EVERYTHING = "--container-ns=user,pid,net,ipc,uts,cgroup,time"
UNMAPPED = Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii").strip()


@pytest.fixture(scope="module")
def shared() -> Iterator[Contained]:
    with contained() as found:
        yield found


def out(found: Contained, *words: str) -> str:
    done = found.node.run(*words, user=OTHER)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kinds", ["--container-ns=user", EVERYTHING])
def test_user_and_its_groups_are_themselves_and_nobody_else_is_there(shared: Contained, kinds: str) -> None:
    uid, *said = out(shared, kinds, "sh", "-c", "id -u; id -G; cat /proc/self/uid_map /proc/self/gid_map").splitlines()
    groups = said.pop(0).split()
    assert uid == str(OTHER.pw_uid)
    assert said.pop(0).split() == [uid, uid, "1"]
    mapped = [int(first) + n for first, _, count in map(str.split, said) for n in range(int(count))]
    assert all(first == outside for first, outside, _ in map(str.split, said))
    assert sorted(map(str, mapped)) == sorted(groups)


def test_files_keep_their_owner_and_those_of_others_are_nobodys(shared: Contained) -> None:
    mine = shared.node.scratch / "mine"
    said = out(shared, EVERYTHING, "sh", "-c", f"echo x > {mine}; cat {mine}; stat -c %u {mine} / /tmp")
    assert said.split() == ["x", str(OTHER.pw_uid), UNMAPPED, str(OTHER.pw_uid)]
    assert (mine.stat().st_uid, mine.stat().st_gid) == (OTHER.pw_uid, OTHER.pw_gid)
    mine.unlink()


@pytest.fixture
def becoming_root(shared: Contained) -> Iterator[str]:
    """A set-user-ID program of root's, on a file system that lets it be one."""
    path = Path("/usr/local/bin") / f"{shared.node.dir.name}-id"
    shutil.copy("/usr/bin/id", path)
    path.chmod(0o4755)
    yield str(path)
    path.unlink()


def test_a_program_of_roots_gives_nothing_inside(shared: Contained, becoming_root: str) -> None:
    assert out(shared, "--secure=none", becoming_root, "-u").strip() == "0"
    assert out(shared, "--secure=none", EVERYTHING, becoming_root, "-u").strip() == str(OTHER.pw_uid)


def test_nothing_of_root_is_left_and_a_mount_wants_a_namespace_of_ones_own(shared: Contained) -> None:
    said = out(shared, EVERYTHING, "grep", "-E", "Cap(Inh|Prm|Eff|Amb)", "/proc/self/status").split()
    assert said[1::2] == ["0" * 16] * 4
    done = shared.node.run(EVERYTHING, "mount", "-t", "tmpfs", "none", "/mnt", user=OTHER)
    assert done.returncode != 0
    nested = "mount -t tmpfs -o size=4k none /mnt && stat -f -c %T /mnt"
    assert out(shared, EVERYTHING, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", nested) == "tmpfs\n"


@pytest.mark.parametrize("kind", ["mnt", "pid", "net", "ipc", "uts", "time"])
def test_other_namespaces_of_the_job_belong_to_it(shared: Contained, kind: str) -> None:
    job = shared.node.popen(EVERYTHING, "sh", "-c", "echo ready; read x", user=OTHER, stdin=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    held = shared.base / str(shared.node.last_job()) / "ns"
    with (held / kind).open() as file:
        owner = fcntl.ioctl(file, NS_GET_USERNS)
    assert os.fstat(owner).st_ino == (held / "user").stat().st_ino
    os.close(owner)
    job.communicate("\n", timeout=PATIENCE)


@pytest.mark.parametrize("user", [OTHER, None])
def test_capabilities_that_a_level_takes_are_not_given_back_there(
    shared: Contained, user: pwd.struct_passwd | None
) -> None:
    words = ("--secure=strict", "-D", "/tmp", "grep", "-E", "Cap(Eff|Bnd)", "/proc/self/status")
    done = shared.node.run(EVERYTHING, *words, user=user)
    assert done.stdout.split()[1::2] == ["0" * 16] * 2, done.stderr


PLUGIN = """
import os

def told(name):
    with open("/proc/self/status") as file:
        powers = [line.split()[1] for line in file if line.startswith("CapEff")]
    os.write(RESULTS, f"{name} {os.readlink('/proc/self/ns/user')} {powers[0]}\\n".encode())

RESULTS = os.open("%s", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

def slurm_spank_init(sp, ac, argv):
    told("init")

def slurm_spank_task_init_privileged(sp, ac, argv):
    told("task_init_privileged")

def slurm_spank_task_init(sp, ac, argv):
    told("task_init")

def slurm_spank_exit(sp, ac, argv):
    told("exit")
"""


def test_root_and_its_hooks_stay_out_and_those_of_the_user_are_inside() -> None:
    with contained() as found:
        results = found.node.dir / "results"
        results.touch()
        results.chmod(0o666)
        path = found.node.plugin("where", PLUGIN % results)
        found.node.plugstack(f"required {path}\n")
        found.node.restart()
        (inside,) = out(found, EVERYTHING, "readlink", "/proc/self/ns/user").split()
        found.assert_gone()
        said = {name: (where, powers) for name, where, powers in map(str.split, results.read_text().splitlines())}
        ours = os.readlink("/proc/self/ns/user")
        assert inside != ours
        assert {name: where for name, (where, _) in said.items()} == {
            "init": ours, "task_init_privileged": ours, "task_init": inside, "exit": ours,
        }  # fmt: skip
        assert said["task_init"][1] == "0" * 16
        assert int(said["task_init_privileged"][1], 16)


def test_whatever_else_of_a_step_is_the_users_runs_inside() -> None:
    with contained(container_namespaces=["user"]) as found:
        for name in ("prolog", "epilog"):
            script = found.node.dir / name
            script.write_text(f"#!/bin/sh\nreadlink /proc/self/ns/user > /tmp/{name}\n", encoding="utf-8")
            script.chmod(0o755)
        (found.node.dir / "epilog").write_text(
            f"#!/bin/sh\nreadlink /proc/self/ns/user > {found.node.scratch}/epilog\n", encoding="utf-8"
        )
        words = [f"--task-prolog={found.node.dir}/prolog", f"--task-epilog={found.node.dir}/epilog"]
        outside = found.node.scratch / "out"
        out(found, *words, "-n2", "-l", "-o", str(outside), "sh", "-c", "readlink /proc/self/ns/user; cat /tmp/prolog")
        said = {line.partition(": ")[2] for line in outside.read_text().splitlines()}
        assert said == {(found.node.scratch / "epilog").read_text().strip()}
        assert os.readlink("/proc/self/ns/user") not in said
        assert outside.stat().st_uid == OTHER.pw_uid
