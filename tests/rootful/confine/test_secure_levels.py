"""Who gets which level of confinement: the configuration's floor, what is asked for, who asks from within a step."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator

import pytest

from nodectl.model.confinement_level import LEVELS, is_below
from rootful.at_terminal import run_at_terminal
from rootful.confined import read_status, status
from rootful.node import NOBODY, PATIENCE, Node, running
from rootful.raw import call, exchange, launch

CLONE3 = 435
HELLO = call("org.nodectl.Hello")


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    with running(secure_floor="default") as started:
        yield started


@pytest.mark.parametrize("user", [pytest.param(NOBODY, id="nobody"), pytest.param(None, id="root")])
def test_less_than_the_floor_is_refused_in_one_line_that_names_both(served: Node, user: object) -> None:
    done = served.run("--secure=none", "true", user=user)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "secure: none is below what this node demands: secure_floor = default" in line


@pytest.mark.parametrize("level", ["default", "strict"])
def test_the_floor_and_more_are_granted(served: Node, level: str) -> None:
    assert status(served, f"--secure={level}")["NoNewPrivs"] == "1"
    assert served.record(served.last_job())["secure"] == level


def test_without_a_word_a_step_gets_the_floor_where_that_is_more() -> None:
    with running(secure_floor="strict") as node:
        assert int(status(node, user=None)["CapBnd"], 16) == 0
        assert node.record(node.last_job())["secure"] == "strict"


def test_none_can_be_the_configured_level() -> None:
    with running(secure="none") as node:
        assert status(node)["NoNewPrivs"] == "0"
        assert status(node, "--secure=default")["NoNewPrivs"] == "1"


def test_a_level_below_the_floor_is_no_configuration() -> None:
    node = Node(secure="none", secure_floor="strict")
    try:
        done = node.nodectl("daemon")
        assert done.returncode == 1
        assert done.stderr == "nodectl daemon: secure = none is below secure_floor = strict\n"
        assert "secure = none is below secure_floor = strict" in node.nodectl("doctor").stdout
    finally:
        node.close()


@pytest.mark.parametrize("level", ["", "Strict", "strict ", "x" * 17, "no\nne", 2, True, ["strict"], {"level": 1}])
def test_a_malformed_level_is_refused_by_its_name(served: Node, level: object) -> None:
    reply, closed = exchange(served, launch(secure=level))
    assert reply is not None
    assert reply["error"] == "org.nodectl.InvalidRequest"
    assert reply["parameters"]["parameter"] == "secure"  # type: ignore[index]
    assert not closed


def test_a_misspelt_level_is_one_line(served: Node) -> None:
    done = served.run("--secure=strictest", "true", user=NOBODY)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "secure: 'strictest' is none of none, default, strict" in line


@pytest.fixture
def free() -> Iterator[Node]:
    """A node without a floor."""
    with running(secure="none") as started:
        yield started


def from_within(node: Node, level: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A step of this level that runs a nodectl command."""
    return node.run(f"--secure={level}", *node.command(*words), user=NOBODY)


@pytest.mark.parametrize("outer", LEVELS)
@pytest.mark.parametrize("inner", LEVELS)
def test_a_process_of_a_step_gets_no_step_with_more_rights(free: Node, outer: str, inner: str) -> None:
    done = from_within(free, outer, "run", f"--secure={inner}", "grep", "NoNewPrivs", "/proc/self/status")
    if outer == "strict":
        assert done.returncode == 1
        assert ", at strict, starts no other" in done.stderr
    elif is_below(inner, outer):
        assert done.returncode == 1
        assert f"secure: {inner} is below {outer}, the level of step " in done.stderr
    else:
        assert done.stdout.split() == ["NoNewPrivs:", "0" if inner == "none" else "1"], done.stderr


def test_a_step_from_within_a_step_inherits_its_level(free: Node) -> None:
    done = from_within(free, "default", "run", "cat", "/proc/self/status")
    assert read_status(done.stdout)["NoNewPrivs"] == "1"
    assert free.record(free.last_job())["secure"] == "default"


def test_a_strict_step_writes_nowhere_else_by_another_step(free: Node) -> None:
    """Of which it would choose the working directory, and files for output, which are opened before confinement."""
    elsewhere = free.dir / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    for words in (["-D", str(elsewhere), "touch", "file"], ["-o", f"{elsewhere}/file", "true"]):
        done = from_within(free, "strict", "run", *words)
        assert done.returncode == 1
        assert "starts no other" in done.stderr
        assert not list(elsewhere.iterdir())


def test_a_strict_step_visits_itself_and_no_other_strict_one(free: Node) -> None:
    other = Sleeping(free, "strict")
    done = from_within(free, "strict", "enter", other.name, "true")
    assert done.returncode == 1
    assert "is not entered from step" in done.stderr
    other.end()
    script = " ".join(shlex.quote(word) for word in free.command("enter"))
    done = free.run("--secure=strict", "sh", "-c", f"exec {script} $SLURM_JOB_ID echo itself", user=NOBODY)
    assert done.stdout == "itself\n", done.stderr


def test_who_asks_and_is_gone_counts_as_the_strictest(free: Node) -> None:
    """A confined program connects, hands the connection to a child, and ends: nobody can tell any more where from."""
    script = (
        "import os, socket, time\n"
        "reader, writer = os.pipe()\n"
        "if os.fork() == 0:\n"
        f"    sock = socket.socket(socket.AF_UNIX); sock.connect({str(free.socket)!r})\n"
        "    asker = os.getpid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    while os.path.exists(f'/proc/{asker}'): time.sleep(0.01)\n"
        f"    sock.sendall({launch(secure='none', cwd='/tmp')!r}); os.write(writer, sock.recv(4096)); os._exit(0)\n"
        "os.wait(); print(os.read(reader, 4096))\n"
    )
    done = free.run("--secure=strict", "/usr/bin/python3", "-c", script, user=NOBODY)
    assert "NotPermitted" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("before", [False, True])
def test_who_has_got_the_number_of_who_asked_does_not_speak_for_them(free: Node, *, before: bool) -> None:
    """As before, but meanwhile a process outside of every step has the number; also before anybody has accepted."""
    accepted = "" if before else f"sock.sendall({HELLO!r}); sock.recv(4096); "
    script = (
        "import os, socket, sys\n"
        "sock = socket.socket(socket.AF_UNIX)\n"
        "print(flush=True); sys.stdin.readline()\n"
        "asker = os.fork()\n"
        f"if asker == 0: sock.connect({str(free.socket)!r}); {accepted}os._exit(0)\n"
        "os.wait(); print(asker, flush=True); sys.stdin.read()\n"
        f"sock.sendall({launch(secure='none', cwd='/tmp')!r}); print(sock.recv(4096))\n"
    )
    words = ["--secure=strict", "/usr/bin/python3", "-c", script]
    with free.popen(*words, user=NOBODY, stdin=subprocess.PIPE) as step:
        assert step.stdin is not None
        assert step.stdout is not None
        assert step.stdout.readline() == "\n"
        listener = free.listener()
        if before:
            os.kill(listener, signal.SIGSTOP)
        step.stdin.write("go\n")
        step.stdin.flush()
        with born_as(int(step.stdout.readline())):
            if before:
                with contextlib.suppress(ProcessLookupError):  # it was silent for too long, and another has its place
                    os.kill(listener, signal.SIGCONT)
            step.stdin.close()
            assert "NotPermitted" in step.stdout.read()


@contextlib.contextmanager
def born_as(pid: int) -> Iterator[None]:
    """A process of ours that has this number, which nobody has."""
    wanted = ctypes.c_int(pid)
    # struct clone_args of clone3(2): without flags, SIGCHLD at its end, and one number that it is to have.
    arguments = (ctypes.c_uint64 * 10)(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), 1)
    libc = ctypes.CDLL(None, use_errno=True)
    born = libc.syscall(CLONE3, arguments, ctypes.sizeof(arguments))
    if born == 0:
        try:
            os.execv("/bin/sleep", ["sleep", "60"])  # which closes what this process has open
        finally:
            os._exit(1)
    assert born == pid, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Sleeping:
    """A job of nobody's that waits."""

    def __init__(self, node: Node, level: str) -> None:
        self.client = node.popen(f"--secure={level}", "sh", "-c", "echo ready; sleep 60", user=NOBODY)
        assert self.client.stdout is not None
        assert self.client.stdout.readline() == "ready\n"
        self.node = node
        self.name = str(node.last_job())

    def end(self) -> None:
        self.node.nodectl("signal", "-s", "KILL", self.name)
        self.client.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("command", ["enter", "bcast"])
def test_a_confined_step_visits_no_job_with_more_rights(free: Node, command: str) -> None:
    job = Sleeping(free, "none")
    target = free.scratch / "target"
    words = {
        "enter": ("enter", job.name, "touch", str(target)),
        "bcast": ("bcast", "--job", job.name, "/etc/passwd", str(target)),
    }[command]
    for level in ("default", "strict"):
        done = from_within(free, level, *words)
        assert done.returncode == 1
        assert f"step {job.name}.0, at secure=none, is not entered from step" in done.stderr
    assert not target.exists()
    assert from_within(free, "none", *words).returncode == 0
    assert target.exists()
    job.end()


def test_a_confined_step_types_at_no_terminal_with_more_rights(free: Node) -> None:
    target = free.scratch / "target"
    with run_at_terminal(free, "--secure=none", "--pty", "sh", user=NOBODY) as victim:
        victim.wait_for(r"\$ ")
        name = str(free.last_job())
        attach = shlex.join(free.command("attach", name))
        for level in ("default", "strict"):
            done = free.run(f"--secure={level}", "sh", "-c", f"echo 'touch {target}; exit' | {attach}", user=NOBODY)
            assert done.returncode == 1, done.stdout
            assert f"step {name}.0, at secure=none, is not entered from step" in done.stderr
        assert not target.exists()
        done = free.run("--secure=none", "sh", "-c", f"echo 'touch {target}; exit' | {attach}", user=NOBODY)
        assert done.returncode == 0, done.stderr
        assert victim.wait_for_end() == 0
    assert target.exists()


def test_a_strict_step_sees_its_own_terminal_and_no_other_strict_ones(free: Node) -> None:
    attach = shlex.join(free.command("attach", "-r"))
    with run_at_terminal(free, "--secure=strict", "--pty", "sh", user=NOBODY) as other:
        other.wait_for(r"\$ ")
        done = free.run("--secure=strict", "sh", "-c", f"{attach} {free.last_job()}", user=NOBODY)
        assert done.returncode == 1, done.stdout
        assert "is not entered from step" in done.stderr
        other.line(f"echo fir''st; {attach} $SLURM_JOB_ID >seen & until grep first seen; do sleep 0.1; done; exit")
        assert other.wait_for_end() == 0
    assert "first" in (free.scratch / "seen").read_text()


def test_visitors_are_confined_as_the_job_is(free: Node) -> None:
    outside = free.dir / "outside"
    outside.mkdir()
    os.chown(outside, NOBODY.pw_uid, -1)
    job = Sleeping(free, "strict")
    script = f"cat /proc/self/status; touch {free.scratch}/inside; touch {outside}/file"
    done = free.nodectl("enter", job.name, "sh", "-c", script, user=NOBODY)
    found = read_status(done.stdout)
    assert (found["NoNewPrivs"], found["Seccomp"], int(found["CapBnd"], 16)) == ("1", "2", 0)
    assert "Permission denied" in done.stderr
    done = free.nodectl("bcast", "--job", job.name, "/etc/passwd", str(outside / "file"), user=NOBODY)
    assert done.returncode == 1
    assert "Permission denied (as nobody)" in done.stderr
    done = free.nodectl("bcast", "--job", job.name, "/etc/passwd", str(free.scratch / "copy"), user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in free.scratch.iterdir()) == ["copy", "inside"]
    assert list(outside.iterdir()) == []
    job.end()
