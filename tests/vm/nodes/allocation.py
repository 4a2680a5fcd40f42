"""An ordinary user's allocation of three machines: two of the three CPUs of each, and a bounded part of their memory.

It is salloc's, typed on the first of them.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from vm import service
from vm.nodes import remote

NODES = ("n1", "n2", "n3")
MEMORY = 250  # MiB of each, of which the agents need a part
CPUS = 2  # of each
USER = "alice"
SCOPE = "/system.slice/{node}_slurmstepd.scope"  # where Slurm has the cgroups of its jobs
_SECONDS = "200"  # for agents: emulated machines share the CPUs of a busy host
_PATIENCE = 240.0
_SHELL = 'env -0 >"$0.part" && mv "$0.part" "$0" && read line'
_SHARED = {"cluster", "holders"}  # directories that the user's next cluster uses, too
_OWN = ("/tmp", "/dev/shm", "/run/user")


class Allocation:
    """With nodectl's agents from `start` on. As a context: until its end."""

    def __init__(self) -> None:
        self._home = Path(pwd.getpwnam(USER).pw_dir)
        told = self._home / "environment"
        told.unlink(missing_ok=True)
        words = ["salloc", "-N3", f"--ntasks-per-node={CPUS}", f"--mem={MEMORY}", "sh", "-c", _SHELL, str(told)]
        self._shell = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            user=USER, group=USER, extra_groups=[], cwd=self._home,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self._home), "USER": USER, "LANG": "C.UTF-8"},
        )  # fmt: skip
        service.wait_until(lambda: told.exists() or self._shell.poll() is not None, "salloc has its nodes")
        assert told.exists(), self._shell.communicate()
        pairs = (pair.partition("=") for pair in told.read_text().split("\0") if pair)
        self._environment = {name: value for name, _, value in pairs}
        self._environment["PATH"] = f"/opt/nodectl/bin:{self._environment['PATH']}"
        self.job = self._environment["SLURM_JOB_ID"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Its shell ends, which may have ended already."""
        try:
            self._shell.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self._shell.kill()
            self._shell.communicate()
            remote.run("n1", "scancel", self.job)

    def start(self) -> None:
        """The cluster."""
        done = self.nodectl("cluster", "start", "--seconds", _SECONDS)
        assert done.returncode == 0, done

    def popen(self, *words: str) -> subprocess.Popen[str]:
        """A command of nodectl's, left alone."""
        return subprocess.Popen(
            ["nodectl", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            user=USER, group=USER, extra_groups=[], cwd=self._home, env=self._environment,
        )  # fmt: skip

    def nodectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Likewise, to its end."""
        command = self.popen(*words)
        out, error = command.communicate(timeout=_PATIENCE)
        return subprocess.CompletedProcess(words, command.returncode, out, error)

    def run(self, *words: str) -> list[str]:
        """What the tasks of a step say, a line each, in their order; it must end well."""
        done = self.nodectl("run", "-l", *words)
        assert (done.returncode, done.stderr) == (0, ""), done
        return in_order(done.stdout)

    def place(self, node: str) -> str:
        """The cgroup in which Slurm has the agents of that node, and so every process of a step."""
        return f"{SCOPE.format(node=node)}/job_{self.job}/step_0/user/task_0"


def in_order(labelled: str) -> list[str]:
    """What `run -l` has printed, without the labels, in the order of tasks."""
    lines = (line.split(": ", 1) for line in labelled.splitlines())
    return [said for _, said in sorted(lines, key=lambda line: int(line[0]))]


def wait_for_slurm() -> None:
    """Until all machines are there, and take jobs."""
    service.wait_until(lambda: all(remote.answers(node) for node in NODES), "all machines are there")
    service.wait_until(lambda: _states() == ["idle"] * len(NODES), "Slurm has its nodes")


def _states() -> list[str]:
    return remote.run("n1", "sinfo", "-h", "-N", "-o", "%T").stdout.split()


def left() -> list[str]:
    """What is there of a user's jobs on any of the machines: processes, cgroups, files."""
    found = []
    for node in NODES:
        processes = remote.run(node, "ps", "-u", USER, "-o", "pid=,args=").stdout
        groups = remote.run(node, "find", f"/sys/fs/cgroup{SCOPE.format(node=node)}", "-name", "job_*").stdout
        files = remote.run(node, "find", *_OWN, "-user", USER).stdout.splitlines()
        shared = {f"/tmp/nodectl-{pwd.getpwnam(USER).pw_uid}"}
        files = [path for path in files if path not in shared and os.path.basename(path) not in _SHARED]
        found += [f"{node}: {line}" for line in (*processes.splitlines(), *groups.splitlines(), *files)]
    return found


def assert_clean() -> None:
    """Soon nothing is left of any job."""
    service.wait_until(lambda: not left(), f"nothing is left; at first {left()}")
