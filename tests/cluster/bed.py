"""A Slurm of a head and four nodes on one machine, each with a network, processes, a /tmp and a name of its own.

All of it runs in namespaces that end with the run of the tests, whatever ends it, kill -9 too; a watcher outside then
removes its directory. Users' homes are the same directories on all machines, as with a shared file system.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import prctl

import watcher
from cluster import machine, sshd
from cluster.processes import children, descendants, is_first, kill, words_of
from rootful.node import NOBODY, OTHER, PATIENCE, wait_until
from slurm.daemons import Daemons
from slurm.packages import NoSlurm, fetch

_LOCK = "lock"
_SALLOC_SECONDS = 10.0
SLURMS_PATIENCE = 4 * PATIENCE  # seconds: it looks every half a minute at a node that was away, later when it is busy
_PLACES = "nodectl-cluster-"
_INTO = ("--mount", "--net", "--pid", "--uts", "--ipc")
_USERS_PROGRAMS = ("starting.py", "small_agent.py")


class Bed:
    """`begin` makes it, `end` removes it."""

    def __init__(self) -> None:
        sweep()
        self.dir = Path(tempfile.mkdtemp(prefix=_PLACES, dir="/run"))
        self.dir.chmod(0o755)
        for name in _USERS_PROGRAMS:  # a checkout may lie where users cannot go
            shutil.copy(Path(__file__).with_name(name), self.dir)
        self.starting = str(self.dir / _USERS_PROGRAMS[0])
        self._daemons = Daemons(self.dir)
        self._head: subprocess.Popen[str] | None = None
        self._dead: set[str] = set()
        self._cut: set[str] = set()
        self._watching, self._alive = watcher.begin(lambda: _remove(self.dir))
        for user in (NOBODY, OTHER):
            self.home(user).mkdir(parents=True, mode=0o700)
            os.chown(self.home(user), user.pw_uid, user.pw_gid)

    def begin(self) -> None:
        """Raises NoSlurm."""
        fetch(self._daemons.root, *sshd.PACKAGES)
        machine.write_hosts(self.dir / "hosts")
        machine.write_accounts(self.dir / "passwd", {user.pw_name: self.home(user) for user in (NOBODY, OTHER)})
        words = [*machine.APART, sys.executable, "-P", str(Path(__file__).with_name("head.py")), str(self.dir)]
        lock = _lock(self.dir)
        with (self.dir / "head.log").open("ab") as log:
            self._head = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, pass_fds=(lock,),
                preexec_fn=_end_with_parent,  # noqa: PLW1509  # there is no thread
            )  # fmt: skip
        os.close(lock)
        if (said := self._answer()) != "ready":
            raise NoSlurm(said or self._log("head"))

    def end(self) -> None:
        """Ends all that runs there; the watcher removes the rest."""
        if self._head is not None:
            self._head.kill()
            self._head.communicate()
        os.close(self._alive)
        os.waitpid(self._watching, 0)

    # Machines.

    def kill(self, node: str) -> None:
        """It loses its power."""
        self._order("kill", node)
        self._dead.add(node)

    def boot(self, node: str) -> None:
        """It is there again, with a cable of its own, and Slurm knows."""
        self._order("boot", node)
        self._dead.discard(node)
        self._cut.discard(node)
        self._wait_for(node)

    def cut(self, node: str) -> None:
        """Packets from and to it are lost, and nobody is told."""
        self._order("cut", node)
        self._cut.add(node)

    def mend(self, node: str) -> None:
        """Undoes `cut`; Slurm knows."""
        self._order("mend", node)
        self._cut.discard(node)
        self._wait_for(node)

    def kill_controller(self, known: str) -> None:
        """By SIGKILL, as soon as its disk has this word: what it has not written there the next one does not know."""
        state = self.dir / "state" / "job_state"
        wait_until(lambda: known.encode() in state.read_bytes(), f"slurmctld has written {known}")
        self._order("kill", machine.CONTROLLER)
        self._dead.add(machine.CONTROLLER)

    def boot_controller(self) -> None:
        """It is there again, and knows what it knew."""
        self._order("boot", machine.CONTROLLER)
        self._dead.discard(machine.CONTROLLER)
        wait_until(lambda: self.run("scontrol", "ping").stdout.rstrip().endswith(" UP"), "slurmctld serves")

    def _order(self, order: str, node: str) -> None:
        assert self._head is not None
        assert self._head.stdin is not None
        self._head.stdin.write(f"{order} {node}\n")
        self._head.stdin.flush()
        assert self._answer() == "done", self._log("head")

    def _answer(self) -> str:
        assert self._head is not None
        assert self._head.stdout is not None
        return self._head.stdout.readline().strip()

    def _log(self, name: str) -> str:
        return (self.dir / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def _wait_for(self, node: str) -> None:
        try:
            wait_until(lambda: self._serves(node), f"{node} serves", SLURMS_PATIENCE)
        except AssertionError as error:
            said = self.run("scontrol", "show", "node", node).stdout
            raise AssertionError(f"{error}\n{said}{self._log(node)}") from None

    def _serves(self, node: str) -> bool:
        """Slurm asks one that it has given up only now and then, unless it is told that the node is there again."""
        state = self.run("sinfo", "-h", "-n", node, "-o", "%T").stdout.strip()
        if state.startswith("down"):
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        return state in ("idle", "mixed", "allocated")  # without the star of one that does not answer

    # Processes there.

    def home(self, user: pwd.struct_passwd) -> Path:
        return self.dir / "home" / user.pw_name

    def popen(
        self,
        *words: str,
        user: pwd.struct_passwd | None = None,
        machine: str = machine.HEAD,
        env: Mapping[str, str] | None = None,
        **how: Any,
    ) -> subprocess.Popen[str]:
        """A program on one of the machines. It is a child of the process that is returned: `inner` is its number."""
        pid = str(self.first_process(machine))
        who = [f"--setuid={user.pw_uid}", f"--setgid={user.pw_gid}"] if user else []
        place = str(self.home(user) if user else self.dir)
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            ["nsenter", f"--target={pid}", *_INTO, *who, "--", "env", "-C", place, *words],
            env={**self.environment(user), **(env or {})}, text=True, errors="surrogateescape", **{**streams, **how},
        )  # fmt: skip

    def run(self, *words: str, timeout: float = 2 * PATIENCE, **how: Any) -> subprocess.CompletedProcess[str]:
        """A program on one of the machines, to its end."""
        process = self.popen(*words, **how)
        try:
            out, error = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill(process)
            out, error = process.communicate()
            raise AssertionError(f"{words} does not end: {out}{error}") from None
        return subprocess.CompletedProcess(words, process.returncode, out, error)

    def environment(self, user: pwd.struct_passwd | None = None) -> dict[str, str]:
        """Of a user at the head, who finds Slurm's commands."""
        found = {**self._daemons.environment, "LANG": "C.UTF-8"}
        found["PATH"] = f"{self._daemons.root}/usr/bin:{found['PATH']}"
        return {**found, "HOME": str(self.home(user)), "USER": user.pw_name} if user else found

    def first_process(self, name: str) -> int:
        """The machine's, in whose namespaces all others there are."""
        assert self._head is not None
        (head,) = children(self._head.pid)
        if name == machine.HEAD:
            return head
        (found,) = (pid for pid in descendants(head) if words_of(pid)[-2:] == [str(self.dir), name] and is_first(pid))
        return found

    def processes(self, user: pwd.struct_passwd) -> dict[int, str]:
        """All of the user's, on all machines, zombies not counted."""
        found = {}
        for pid in descendants(os.getpid()):  # what `popen` has started is no child of the head's
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{pid}").st_uid == user.pw_uid and (words := words_of(pid)):
                    found[pid] = " ".join(words)
        return found

    def runs_on(self, pid: int, name: str) -> bool:
        """Whether a process is on that machine."""
        try:
            return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{self.first_process(name)}/ns/pid")
        except (FileNotFoundError, ProcessLookupError):
            return False

    def daemons(self) -> dict[int, str]:
        """Root's: those of Slurm, and their steps'."""
        return self.processes(pwd.getpwuid(0))

    def files(self, user: pwd.struct_passwd) -> list[str]:
        """All of the user's in what each machine has for itself, but for directories which other nodes of theirs use,
        too.
        """
        shared = {f"nodectl-{user.pw_uid}", "cluster", "holders"}
        found = []
        for name in (machine.HEAD, *machine.NODES):
            with contextlib.suppress(ValueError, FileNotFoundError):  # it is dead
                root = Path(f"/proc/{self.first_process(name)}/root")
                paths = (path for place in machine.OWN for path in (root / place[1:]).rglob("*"))
                found += [
                    f"{name}:{path}"
                    for path in paths
                    if _owner(path) == user.pw_uid and not (path.name in shared and path.is_dir())
                ]
        return found

    def assert_clean(self, patience: float = PATIENCE) -> None:
        """Within `patience` seconds no job, process and file of any user is left."""
        end = time.monotonic() + patience
        while left := self._left():
            assert time.monotonic() < end, f"left behind: {left}"
            time.sleep(0.05)

    def recover(self) -> None:
        """What a test that failed has left would have the next ones fail."""
        if machine.CONTROLLER in self._dead:
            self.boot_controller()
        for node in sorted(self._dead):
            self.boot(node)
        for node in sorted(self._cut):
            self.mend(node)
        if self._left():
            for user in (NOBODY, OTHER):
                self.run("scancel", f"--user={user.pw_name}")
                for pid in self.processes(user):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)
                for name in (machine.HEAD, *machine.NODES):
                    self.run("rm", "-rf", f"/tmp/nodectl-{user.pw_uid}", machine=name)

    def _left(self) -> list[object]:
        jobs: list[object] = [*self.run("squeue", "-h").stdout.splitlines()]
        return jobs + [found for user in (NOBODY, OTHER) for found in (self.processes(user), self.files(user)) if found]

    # Jobs.

    @contextlib.contextmanager
    def salloc(self, *options: str, nodes: int = 3, user: pwd.struct_passwd = NOBODY) -> Iterator[Allocation]:
        """An allocation of the first nodes, as salloc gives it to the user's shell; the shell ends with the block."""
        found = Allocation(self, user, f"-w{','.join(machine.NODES[:nodes])}", *options)
        try:
            yield found
        finally:
            found.end()

    def sbatch(self, script: str, *options: str, user: pwd.struct_passwd = NOBODY) -> str:
        """The number of the job; its script runs on the first of its nodes."""
        done = self.run("sbatch", "--parsable", *options, user=user, stdin=_text(script))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def scancel(self, job: str, *options: str) -> None:
        done = self.run("scancel", *options, job)
        assert done.returncode == 0, done.stderr

    def wait_for_end(self, job: str) -> None:
        """Until Slurm has nothing left of it to do."""
        wait_until(lambda: not self.run("squeue", "-h", "-j", job).stdout.strip(), f"job {job} ends", SLURMS_PATIENCE)


class Allocation:
    """One of salloc's, for as long as its shell lives, which is at the head."""

    def __init__(self, bed: Bed, user: pwd.struct_passwd, *options: str) -> None:
        self._bed = bed
        self.user = user
        path = bed.home(user) / f"environment-{time.monotonic_ns()}"
        shell = 'env -0 >"$0.part" && mv "$0.part" "$0" && read line'
        self._shell = bed.popen("salloc", *options, "sh", "-c", shell, str(path), user=user, stdin=subprocess.PIPE)
        wait_until(lambda: path.exists() or self._shell.poll() is not None, "it has nodes", SLURMS_PATIENCE)
        assert path.exists(), self._shell.communicate()
        pairs = (pair.partition("=") for pair in path.read_text(encoding="utf-8").split("\0") if pair)
        self.environment = {name: value for name, _, value in pairs}
        path.unlink()
        self.job = self.environment["SLURM_JOB_ID"]

    def popen(self, *words: str, machine: str = machine.HEAD, **how: Any) -> subprocess.Popen[str]:
        """A program in the allocation, typed at the head or in a shell on one of its nodes."""
        there = {} if machine == "head" else {"SLURMD_NODENAME": machine}
        env = {**self.environment, **there, **how.pop("env", {})}
        return self._bed.popen(*words, user=self.user, machine=machine, env=env, **how)

    def run(self, *words: str, machine: str = machine.HEAD, **how: Any) -> subprocess.CompletedProcess[str]:
        """Like `popen`, to its end."""
        there = {} if machine == "head" else {"SLURMD_NODENAME": machine}
        env = {**self.environment, **there, **how.pop("env", {})}
        return self._bed.run(*words, user=self.user, machine=machine, env=env, **how)

    def end(self) -> None:
        try:
            self._shell.communicate(timeout=_SALLOC_SECONDS)
        except subprocess.TimeoutExpired:  # salloc may hang where its job was cancelled at the same moment
            kill(self._shell)
            self._shell.communicate()
            self._bed.run("scancel", self.job)
        self._bed.wait_for_end(self.job)


def sweep() -> None:
    """Removes what runs that were killed, and whose watcher was killed, have left."""
    for path in Path("/run").glob(f"{_PLACES}*/{_LOCK}"):
        if not _is_held(path):
            _remove(path.parent)


def _lock(directory: Path) -> int:
    """A file that is locked for as long as the head has it open, and for others never seen unlocked before."""
    path = directory / f"{_LOCK}.new"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    path.rename(directory / _LOCK)
    return fd


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _remove(directory: Path) -> None:
    end = time.monotonic() + PATIENCE
    while directory.exists() and time.monotonic() < end:
        if not _is_held(directory / _LOCK):
            shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.05)


def _end_with_parent() -> None:
    prctl.set_pdeathsig(9)


def _owner(path: Path) -> int:
    """-1 for what has gone."""
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return -1


def _text(text: str) -> Any:
    """A file to be read."""
    file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # it goes when nobody has it open
    file.write(text)
    file.seek(0)
    return file
