"""Agents of one cluster on this machine: a process each, as an ordinary user, found by each other over loopback."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from nodectl.launch.cgroup.tree import Group
from rootful.node import BOOT, NOBODY, PATH, PATIENCE, wait_until
from rootful.slurms import SlurmJob, words_in

JOB = 4711
GIVEN_UP = 2 * PATIENCE
_AGENT = "import sys; sys.path[:0] = {path!r}; from nodectl.cluster.agent.main import main; sys.exit(main())"
_LONGEST = 1 << 16


class Agents:
    """`count` of them, n0, n1, ...; `start` returns when all gateways are open. `config`: the user's own configuration.
    `shares`: what is to outlive a node is on one disk. `within`: the job of Slurm's that they are processes of;
    `service`: the configuration of root's on their machine. `variables`: further ones of the agents.
    """

    def __init__(
        self, count: int = 3, user: pwd.struct_passwd = NOBODY, job: int = JOB, *, config: str = "",
        shares: bool = True, within: SlurmJob | None = None, service: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.variables = dict(variables or {})
        self.shares, self.within, self.service = shares, within, service
        self.user, self.job = user, job
        self.names = [f"n{rank}" for rank in range(count)]
        self.dir = Path(tempfile.mkdtemp(prefix="nca-", dir="/run"))
        self.dir.chmod(0o755)
        self.home, self.runtime = self.dir / "home", self.dir / "run"
        for path in (self.home, self.runtime):
            path.mkdir(mode=0o700)
            os.chown(path, user.pw_uid, user.pw_gid)
        if config:
            self._configure(config)
        self.log = self.home / "log"
        self.secret = secrets.token_hex(32)
        self.agents: list[subprocess.Popen[str]] = []
        self.everybody: dict[tuple[int, float], str] = {}  # processes that were seen, to be gone at the end

    def _configure(self, text: str) -> None:
        directory = self.home / ".config" / "nodectl"
        directory.mkdir(parents=True)
        (directory / "nodectl.toml").write_text(text, encoding="utf-8")
        for path in (directory.parent, directory, directory / "nodectl.toml"):
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def gateway(self, rank: int) -> Path:
        return self.runtime / "nodectl" / "cluster" / f"{self.job}.{self.names[rank]}" / "nodectl.sock"

    def environment(self, rank: int, **more: str) -> dict[str, str]:
        """Of a command that is typed on a node."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "SLURM_JOB_ID": str(self.job),
            "SLURMD_NODENAME": self.names[rank],
            **({} if self.shares else {"XDG_STATE_HOME": f"{self.home}/state.{rank}"}),
            **more,
        }

    def how(self, rank: int, user: pwd.struct_passwd | None = None, **more: str) -> dict[str, Any]:
        user = user or self.user
        ids = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        return {"env": self.environment(rank, **more), "cwd": str(self.home), **ids}

    def start(self) -> Agents:
        for rank, _ in enumerate(self.names):
            self.agents.append(self._start(rank))
        self.say(0, self.secret)
        self.at = self._line(0)
        for rank, _ in enumerate(self.names):
            if rank:
                self.say(rank, self.secret)
            self.say(rank, self.at)
        for rank, _ in enumerate(self.names):
            is_alone = rank and not self.shares
            assert self._line(rank) == f"joined {rank}{' alone' if is_alone else ''}", self.logged()
            assert self.gateway(rank).exists()
        self.look()
        return self

    def _start(self, rank: int) -> subprocess.Popen[str]:
        nodes = f"n[0-{len(self.names) - 1}]" if len(self.names) > 1 else "n0"
        told = {"NODECTL_AGENT": f"{self.job} {rank} {nodes}", "NODECTL_CONFIG": self.service}
        how = {**self.how(rank), "env": self.environment(rank, **told, **self.variables)}
        words = [sys.executable, "-I", "-S", "-c", _AGENT.format(path=PATH)]
        if (group := self._cgroup(rank)) is not None:  # which root enters
            words = words_in(group, self.user, *words)
            how = {name: value for name, value in how.items() if name in ("env", "cwd")}
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1, **how,
            )  # fmt: skip

    def _cgroup(self, rank: int) -> Group | None:
        """In which an agent begins; None for this process's."""
        del rank
        return None if self.within is None else self.within.task

    def nobody(self) -> None:
        """An agent of another job that is told no secret, and ends."""
        how = self.how(0, NODECTL_AGENT=f"{self.job + 1} 0 n0")
        words = [sys.executable, "-I", "-S", "-c", _AGENT.format(path=PATH)]
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=GIVEN_UP, **how)

    def say(self, rank: int, line: str) -> None:
        stdin = self.agents[rank].stdin
        assert stdin is not None
        try:
            stdin.write(f"{line}\n")
            stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the agent of rank {rank} has ended: {self.logged()}") from None

    def _line(self, rank: int) -> str:
        stdout = self.agents[rank].stdout
        assert stdout is not None
        line = stdout.readline().strip()
        assert line, self.logged()
        return line

    def begun(self, name: str) -> str:
        """JOB.STEP of the step of this name, when the leader knows that all of its tasks have begun. A task may run
        before that, and its client may have shown what it says.
        """
        found: list[str] = []

        def has_begun() -> bool:
            steps = json.loads(self.nodectl("ps", "--json").stdout)["steps"]
            found[:] = [f"{step['job']}.{step['step']}" for step in steps if step["name"] == name]
            if not found:
                return False
            record = json.loads(self.nodectl("show", "--json", found[0]).stdout)
            return len(record["tasks"]) == int(record["ntasks"])

        wait_until(has_begun, f"{name} runs", GIVEN_UP)
        return found[0]

    def look(self) -> None:
        """Remembers what runs now."""
        for agent in self.agents:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in psutil.Process(agent.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        self.everybody[process.pid, process.create_time()] = " ".join(process.cmdline())[-120:]

    def children(self, rank: int, text: str) -> list[psutil.Process]:
        """Processes beneath an agent whose command line has a text in it."""
        found = []
        for process in psutil.Process(self.agents[rank].pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if text in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def named(self, rank: int, name: str) -> list[psutil.Process]:
        """Processes beneath an agent whose own name begins so."""
        found = []
        for process in self.children(rank, ""):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name().startswith(name):
                    found.append(process)
        return found

    def kill_with_all(self, rank: int, name: str = "") -> list[psutil.Process]:
        """An agent, and at the same time all processes beneath it with this text in their command line, or all: it
        stands still first, and starts none again. Some end when others do, before it is their turn.
        """
        self.look()
        self.agents[rank].send_signal(signal.SIGSTOP)
        found = self.children(rank, "")
        for process in self.children(rank, name):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.agents[rank].kill()
        return found

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-IS", "-c", BOOT.format(path=PATH), *words]

    def nodectl(self, *words: str, rank: int = 0, **how: Any) -> subprocess.CompletedProcess[str]:
        """A command typed on a node, to its end."""
        return subprocess.run(
            self.words(*words), capture_output=True, text=True, check=False,
            timeout=GIVEN_UP, **{"stdin": subprocess.DEVNULL, **self.how(rank), **how},
        )  # fmt: skip

    def popen(self, *words: str, rank: int = 0, **how: Any) -> subprocess.Popen[str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.words(*words), text=True, **{**streams, **self.how(rank), **how})

    def logged(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """As when Slurm ends the step of the agents: their input ends."""
        self.look()
        for agent in self.agents:
            assert agent.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                agent.stdin.close()
        for agent in self.agents:
            agent.wait(GIVEN_UP)

    def left(self) -> list[str]:
        """What was seen, and runs still; and directories."""
        running = []
        for (pid, began), words in self.everybody.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.create_time() == began and process.status() != psutil.STATUS_ZOMBIE:
                    running.append(f"{pid} {words}")
        with contextlib.suppress(FileNotFoundError):  # the last one removes the directory of all
            running += map(str, (self.runtime / "nodectl" / "cluster").iterdir())
        return running

    def close(self) -> None:
        self.stop()
        wait_until(lambda: not self.left(), "nothing is left of the agents and of what was theirs")
        shutil.rmtree(self.dir)

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        self.look()
        self.agents[rank].send_signal(number)


@contextlib.contextmanager
def agents(count: int = 3, **how: Any) -> Iterator[Agents]:
    """For a test; nothing is left of them."""
    cluster = Agents(count, **how)
    try:
        yield cluster.start()
        assert "Traceback" not in cluster.logged(), cluster.logged()
    finally:
        cluster.close()
