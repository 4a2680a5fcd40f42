"""What the programs of a step cannot do at each level of confinement, and what goes on as before."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel import _kernel
from rootful.confined import ENOSYS, EPERM, errors_of, program, status
from rootful.node import NOBODY, Node, running

DENIED = ("keyctl", "add_key", "userfaultfd", "quotactl")
DENIED_TO_ROOT = (*DENIED, "bpf", "open_by_handle_at")
KEPT_BY_ROOT = 0xA184C5FB  # what nodectl/launch/confine/confinement.py says
CAP_NET_RAW = 1 << 13
USERS = [pytest.param(NOBODY, id="nobody"), pytest.param(None, id="root")]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        yield started


@pytest.fixture(autouse=True)
def serves_on(node: Node) -> Iterator[None]:
    yield
    node.assert_clean()
    assert "Traceback" not in node.logged()


def test_a_step_that_does_not_ask_gets_the_configured_level(node: Node) -> None:
    assert status(node)["NoNewPrivs"] == "1"
    assert node.record(node.last_job())["secure"] == "default"
    assert "default" in node.nodectl("show", str(node.last_job())).stdout


@pytest.mark.parametrize("user", USERS)
def test_none_is_what_a_login_shell_is(node: Node, user: object) -> None:
    found = status(node, "--secure=none", user=user)  # type: ignore[arg-type]
    own = Path("/proc/self/status").read_text(encoding="utf-8")
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("0", "0")
    assert f"CapBnd:\t{found['CapBnd']}\n" in own
    assert not any(row["call"] == "confine" for row in node.trace(node.last_job()))


@pytest.mark.parametrize("level", ["default", "strict"])
@pytest.mark.parametrize("user", USERS)
def test_no_capability_is_left_but_those_that_are_documented(node: Node, level: str, user: object) -> None:
    found = status(node, f"--secure={level}", user=user)  # type: ignore[arg-type]
    kept = KEPT_BY_ROOT if level == "default" else 0
    assert int(found["CapBnd"], 16) & ~kept == 0
    for name in ("CapInh", "CapAmb"):
        assert int(found[name], 16) == 0
    mine = _kernel.capabilities()[1] & kept if user is None else 0
    assert (int(found["CapPrm"], 16), int(found["CapEff"], 16)) == (mine, mine)
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")


@pytest.fixture
def set_user_id(node: Node) -> Path:
    """`id` that is root's whoever executes it."""
    path = node.scratch / "id"
    path.write_bytes(Path("/usr/bin/id").read_bytes())
    path.chmod(0o4755)
    return path


@pytest.fixture
def with_file_capability(node: Node) -> Path:
    """`cat` that may send raw packets, whoever executes it; struct vfs_ns_cap_data, capabilities(7)."""
    path = node.scratch / "cat"
    path.write_bytes(Path("/bin/cat").read_bytes())
    path.chmod(0o755)
    os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, CAP_NET_RAW, 0, 0, 0))
    return path


def test_programs_give_their_user_nothing_of_their_owners(
    node: Node, set_user_id: Path, with_file_capability: Path
) -> None:
    gained = {}
    for level in ("none", "default", "strict"):
        uid = node.run(f"--secure={level}", str(set_user_id), "-u", user=NOBODY).stdout.strip()
        text = node.run(f"--secure={level}", str(with_file_capability), "/proc/self/status", user=NOBODY).stdout
        gained[level] = uid, f"CapEff:\t{CAP_NET_RAW:016x}" in text
    assert gained == {
        "none": ("0", True),
        "default": (str(NOBODY.pw_uid), False),
        "strict": (str(NOBODY.pw_uid), False),
    }


@pytest.mark.parametrize("user", USERS)
def test_system_calls_that_no_job_needs_are_denied(node: Node, user: object) -> None:
    names = DENIED if user else DENIED_TO_ROOT
    free = errors_of(node, "none", *names, user=user)  # type: ignore[arg-type]
    assert EPERM not in (free["keyctl"], free["add_key"], free["quotactl"])
    for level in ("default", "strict"):
        assert errors_of(node, level, *names, user=user) == dict.fromkeys(names, EPERM)  # type: ignore[arg-type]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 has three ways in")
@pytest.mark.parametrize("level", ["default", "strict"])
def test_system_calls_are_denied_by_the_other_gateways_of_the_machine_too(node: Node, level: str) -> None:
    caller = subprocess.run([program(node), "int 0x80 keyctl"], capture_output=True, text=True, check=False)
    found = errors_of(node, level, "x32 keyctl", "x32 getpid")
    assert found == {"x32 keyctl": ENOSYS, "x32 getpid": ENOSYS}
    if caller.returncode == 0:  # the kernel runs i386's programs
        assert "=1\n" not in caller.stdout
        assert errors_of(node, level, "int 0x80 keyctl", "int 0x80 getpid") == {
            "int 0x80 keyctl": EPERM,
            "int 0x80 getpid": 0,
        }


def test_namespaces_are_an_ordinary_users_but_not_in_strict(node: Node) -> None:
    names = ("unshare user", "clone user", "clone3 user", "setns")
    free = errors_of(node, "none", *names)
    assert errors_of(node, "default", *names) == free
    strict = errors_of(node, "strict", *names, "unshare files", "clone", "clone3")
    assert strict == {
        "unshare user": EPERM, "clone user": EPERM, "clone3 user": ENOSYS, "setns": EPERM,
        "unshare files": 0, "clone": 0, "clone3": ENOSYS,
    }  # fmt: skip


def test_strict_takes_what_is_large_in_the_kernel_and_words_in_others_terminals(node: Node) -> None:
    names = ("io_uring", "perf", "TIOCSTI", "TIOCSTI, high bits")
    assert EPERM not in [errors_of(node, "default", name)[name] for name in names[2:]]
    assert errors_of(node, "strict", *names) == dict.fromkeys(names, EPERM)


def test_roots_step_mounts_only_without_confinement(node: Node) -> None:
    place = node.dir / "place"
    place.mkdir()
    attempt = f"mount:{place}"
    found = [errors_of(node, level, attempt, user=None)[attempt] for level in ("none", "default", "strict")]
    assert found == [0, EPERM, EPERM]


def victim(user: int, group: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"], user=user, group=group, extra_groups=[])


@pytest.mark.parametrize(("level", "user"), [("default", None), ("strict", None), ("strict", NOBODY)])
def test_processes_outside_of_the_step_are_not_traced(node: Node, level: str, user: object) -> None:
    who = victim(NOBODY.pw_uid, NOBODY.pw_gid) if user else victim(0, 0)
    try:
        attempt = f"ptrace:{who.pid}"
        assert errors_of(node, level, attempt, user=user)[attempt] == EPERM  # type: ignore[arg-type]
        assert who.poll() is None
        restricted = Path("/proc/sys/kernel/yama/ptrace_scope")
        if user is None or not restricted.exists() or restricted.read_text(encoding="ascii") == "0\n":
            assert errors_of(node, "none", attempt, user=user)[attempt] == 0  # type: ignore[arg-type]
    finally:
        who.kill()
        who.wait()


@pytest.mark.parametrize("level", ["default", "strict"])
def test_what_programs_do_all_day_goes_on(node: Node, level: str) -> None:
    script = (
        "import concurrent.futures as f, subprocess as s, socket, signal, os, tempfile\n"
        "with f.ThreadPoolExecutor(4) as pool: print(sum(pool.map(abs, range(-9, 0))))\n"
        "with f.ProcessPoolExecutor(2) as pool: print(sum(pool.map(abs, range(-9, 0))))\n"
        "print(s.run(['sh', '-c', 'echo x | cat | tr x y'], capture_output=True, text=True).stdout.strip())\n"
        "a, b = socket.socketpair(); a.send(b'z'); print(b.recv(1).decode())\n"
        "with tempfile.TemporaryFile() as file: print(file.write(b'12345'))\n"
        "child = os.fork()\n"
        "if child == 0: signal.pause()\n"
        "os.kill(child, 9); print(os.waitpid(child, 0)[1])\n"
    )
    done = node.run(f"--secure={level}", "-n2", "--output=none", "/usr/bin/python3", "-c", script, user=NOBODY)
    assert done.returncode == 0, done.stderr
    done = node.run(f"--secure={level}", "/usr/bin/python3", "-c", script, user=NOBODY)
    assert done.stdout.split() == ["45", "45", "y", "z", "5", "9"], done.stderr


def test_programs_that_a_confined_one_starts_are_confined(node: Node) -> None:
    script = "setsid sh -c 'grep -h -E \"NoNewPrivs|Seccomp:|CapBnd\" /proc/self/status'"
    done = node.run("--secure=strict", "sh", "-c", script, user=NOBODY)
    assert done.stdout.split() == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
