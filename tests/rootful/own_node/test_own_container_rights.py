"""job_container/user: what its programs may not do, and who is refused."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, OTHER, PATH, PATIENCE
from rootful.own import OwnNode, own_node
from rootful.own_contained import CAPABILITIES, USER, assert_gone, contained, out

CALLS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, *words):
    print(name, 0 if getattr(libc, name)(*words) == 0 else os.strerror(ctypes.get_errno()))
tried("mount", b"none", b"/mnt", b"tmpfs", 0, None)
tried("mount", b"/usr", b"/mnt", None, 4096, None)
tried("umount2", b"/tmp", 0)
tried("umount2", b"/tmp", 2)
tried("sethostname", b"x", 1)
tried("setuid", 0)
outside = f"/proc/{os.getppid()}"  # the stepd
for name in ("root", "cwd", "ns/mnt", "mem", *(f"fd/{fd}" for fd in os.listdir(f"{outside}/fd"))):
    try:
        print(name, os.close(os.open(f"{outside}/{name}", os.O_RDONLY)) or 0)
    except OSError as error:
        print(name, error.strerror)
"""
# A user whom no further user namespace is allowed: in one that is, and has the limit.
FORBIDDEN = """
import os, sys
sys.path[:0] = {path!r}
from nodectl.kernel import _namespace
begun, begin = os.pipe()
mapped, done = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(begun, 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{{os.getppid()}}/{{name}}", "w") as file:
            file.write("0 0 65536")
    os.write(done, b"1")
    os._exit(0)
_namespace.unshare(_namespace.CLONE_NEWUSER)
os.write(begin, b"1")
os.read(mapped, 1)
os.waitpid(pid, 0)
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
os.setgroups([])
os.setresgid({gid}, {gid}, {gid})
os.setresuid({uid}, {uid}, {uid})
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[OwnNode]:
    with contained() as node:
        yield node


@pytest.mark.parametrize("level", ["none", "default", "strict"])
def test_a_program_has_no_capability_and_can_mount_and_unmount_nothing(shared: OwnNode, level: str) -> None:
    found = out(shared, f"--secure={level}", "sh", "-c", CAPABILITIES).split()
    assert len(found) == 10
    assert set(found[1::2]) == {"0" * 16}
    said = out(shared, f"--secure={level}", "python3", "-IS", "-c", CALLS).splitlines()
    assert len(said) > 12
    assert not [line for line in said if line.endswith(" 0")], said
    assert out(shared, f"--secure={level}", "sh", "-c", "touch /tmp/x /var/tmp/x /dev/shm/x && echo made") == "made\n"


def test_capabilities_of_a_file_are_not_given_and_the_file_runs(shared: OwnNode) -> None:
    """With a bounded set alone its exec would fail."""
    program = shared.dir / "capable"
    program.write_bytes(Path("/bin/grep").read_bytes())
    program.chmod(0o755)
    permitted = 1 << 21  # CAP_SYS_ADMIN, as set by setcap(8): VFS_CAP_REVISION_2, effective
    os.setxattr(
        program, "security.capability", b"".join(n.to_bytes(4, "little") for n in (0x02000001, permitted, 0, 0, 0))
    )
    outside = subprocess.run(
        [program, "CapEff", "/proc/self/status"], capture_output=True, text=True, check=True, **shared.how()
    )
    assert outside.stdout.split()[1] == f"{permitted:016x}", "the file has it"
    assert out(shared, "--secure=none", str(program), "CapEff", "/proc/self/status").split()[1] == "0" * 16


def test_what_covers_the_machines_directories_is_not_lifted_in_a_namespace_of_ones_own(shared: OwnNode) -> None:
    outside = Path(f"/tmp/{shared.dir.name}")
    outside.touch()
    try:
        script = "umount /tmp; umount -l /tmp; ls -A /tmp; mount --bind / /mnt && ls -A /mnt/tmp; true"
        said = out(shared, "--secure=none", "unshare", "-rm", "sh", "-c", f"{script}; echo end")
        assert said == "end\n"
    finally:
        outside.unlink()


def test_files_are_its_users_and_no_other_user_exists(shared: OwnNode) -> None:
    said = out(shared, "sh", "-c", "id -u; id -g; touch /tmp/x; stat -c '%u %g' /tmp/x /tmp; stat -c %u /etc")
    uid, gid = OTHER.pw_uid, OTHER.pw_gid
    assert said.split("\n") == [str(uid), str(gid), f"{uid} {gid}", f"{uid} {gid}", "65534", ""]


def test_who_may_make_no_user_namespaces_is_told_what_forbids_it_and_what_to_do() -> None:
    with own_node(started=False) as node:
        node.configure("nodectl.toml", USER)
        code = FORBIDDEN.format(path=PATH, uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
        how = {name: value for name, value in node.how().items() if name in ("env", "cwd")}
        said = {}
        for command in (["run", "true"], ["doctor"]):
            words = [sys.executable, "-IS", "-c", code, *node.words("--user", *command)]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE, **how)
            assert done.returncode == 1, (done.stdout, done.stderr)
            said[command[0]] = done
        limit = "make a user namespace: No space left on device (unshare): /proc/sys/user/max_user_namespaces is 0"
        (line,) = said["run"].stderr.splitlines()
        assert limit in line
        assert line.endswith('without containers: job_container_type = "job_container/none"')
        (line,) = (one for one in said["doctor"].stdout.splitlines() if "containers" in one)
        assert line.startswith("fail")
        assert limit in line
        assert_gone(node)


def test_doctor_tells_of_the_key(shared: OwnNode) -> None:
    done = shared.nodectl("doctor")
    assert done.returncode == 0, done.stdout
    assert "job_container/user: namespaces can be made" in done.stdout
    with own_node(started=False) as node:
        assert 'job_container_type = "job_container/user" would give each job' in node.nodectl("doctor").stdout
        node.configure("nodectl.toml", 'job_container_type = "job_container/namespace"\n')
        done = node.nodectl("doctor")
        assert done.returncode == 1
        assert 'job_container/namespace needs root -> job_container_type = "job_container/user"' in done.stdout


def test_namespaces_that_are_asked_for_are_refused(shared: OwnNode) -> None:
    done = shared.nodectl("run", "--container-ns=pid", "true")
    assert done.returncode == 1
    assert "job_container/user has private directories and no namespaces to choose" in done.stderr


@pytest.mark.parametrize(
    ("owner", "mode", "why"),
    [
        (NOBODY, 0o777, "is writable by others than its owner (mode 0777); chmod go-w it"),
        (OTHER, 0o755, f"belongs to uid {OTHER.pw_uid} and not to root or uid {NOBODY.pw_uid}; chown it"),
    ],
)
def test_storage_that_others_could_change_is_refused(owner: pwd.struct_passwd, mode: int, why: str) -> None:
    with own_node(started=False) as node:
        place = node.dir / "open"
        place.mkdir()
        os.chown(place, owner.pw_uid, owner.pw_gid)
        place.chmod(mode)
        node.configure("nodectl.toml", f'{USER}container_base_path = "{place}/containers"\n')
        done = node.nodectl("run", "true")
        assert done.returncode == 1
        assert f"{place} {why}" in done.stderr
        assert f"{place} {why}" in node.nodectl("doctor").stdout
        assert not list(place.iterdir())
