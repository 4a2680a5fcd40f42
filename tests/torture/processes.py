"""Who is who among the processes of a campaign. It has a PID namespace of its own, so /proc shows nobody else's."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.forkserver import spare
from nodectl.launch.stepd.orders import WAITING
from nodectl.model.wire import lean_json

STEPD = "stepd"
RUNNER = "runner"
_KINDS = {
    "nodectl-fork": "forkserver", "nodectl-spank": "slurmd", "nodectl-first": "", "nodectl-errand": "errand",
    WAITING: RUNNER, spare.WAITING: RUNNER,
}  # fmt: skip


@dataclass(frozen=True)
class Process:
    """One that a fault can strike: `kind` is daemon, forkserver, listener, slurmd, errand, stepd, runner (a stepd that
    waits for its next step, or for its first) or task; `name` is its step's.
    """

    pid: int
    kind: str
    name: str = ""

    def signal(self, number: int, known: Callable[[int], list[Process]]) -> bool:
        """Sends a signal to this process, never to another that was given its number; False when it has gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if self.kind in (STEPD, RUNNER) and number != signal.SIGCONT:
                return self._strike_while_it_stands(fd, number, known)
            if self not in known(self.pid):
                return False
            signal.pidfd_send_signal(fd, number)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def _strike_while_it_stands(self, fd: int, number: int, known: Callable[[int], list[Process]]) -> bool:
        """It may begin another step at any moment, unless it is stopped: that one would not know what it suffered."""
        signal.pidfd_send_signal(fd, signal.SIGSTOP)
        meant = self in known(self.pid)
        if meant:
            signal.pidfd_send_signal(fd, number)
        if not meant or number != signal.SIGSTOP:
            signal.pidfd_send_signal(fd, signal.SIGCONT)
        return meant


def found(daemon: int, cgroup_name: str, steps: Path, only: int = 0) -> list[Process]:
    """All that there are now, or one. What becomes a task's program, or is about to, counts as a task."""
    names = _names(steps)
    processes = []
    for pid in [only] if only else map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            kind, step = _kind(pid, daemon, cgroup_name)
            if kind and (not step or step in names):
                processes.append(Process(pid, kind, names.get(step, "")))
    return processes


def _kind(pid: int, daemon: int, cgroup_name: str) -> tuple[str, str]:
    """Its kind and its step, J.S; "" for what is neither the service's nor a step's."""
    if pid == daemon:
        return "daemon", ""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    comm = stat.partition("(")[2].rpartition(")")[0]
    state, _, _, session = stat.rpartition(")")[2].split()[:4]
    if state == "Z":
        return "", ""
    if comm.startswith("nodectl-"):
        return _KINDS.get(comm, "listener"), ""  # whatever reads users' connections for the daemon
    if comm.startswith(STEPD) and int(session) == pid:
        return "stepd", comm.removeprefix(STEPD).strip()
    words = cgroup_of(pid).split("/")
    if cgroup_name in words and "user" in words:
        job, step = (next((word[4 + at :] for word in words if word.startswith(what)), "")
                     for at, what in enumerate(("job_", "step_")))  # fmt: skip
        return "task", f"{job}.{step}"
    return "", ""


def _names(steps: Path) -> Mapping[str, str]:
    """The names of the steps that have files, by J.S."""
    named = {}
    with contextlib.suppress(FileNotFoundError):
        for path in steps.glob("*.json"):
            with contextlib.suppress(OSError, lean_json.BadJson):
                named[path.stem] = str(lean_json.load_object(path.read_bytes()).get("name"))
    return named


def strangers(own: set[int]) -> list[str]:
    """What is left at the end: every process of the namespace but its first, ourselves, and our own children."""
    left = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        if int(entry) not in {1, os.getpid(), *own}:
            with contextlib.suppress(OSError):
                comm = Path(f"/proc/{entry}/comm").read_text(encoding="utf-8").strip()
                left.append(f"process {entry} {comm}")
    return left
