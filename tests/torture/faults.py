"""What strikes at random, whom, and how it is made good again; each step is told what it suffered."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup.tree import RUNNERS
from rootful.node import Node
from torture.judge import SERVICE
from torture.processes import RUNNER, STEPD, Process, found
from torture.service import Service
from torture.works import Works

# How often, whom and how.
DRAWN: dict[tuple[str, str], int] = {
    ("daemon", "KILL"): 8,
    ("daemon", "TERM"): 6,
    ("daemon", "STOP"): 4,
    ("daemon", "descriptors"): 3,
    ("daemon", "memory"): 2,
    ("listener", "KILL"): 6,
    ("listener", "TERM"): 3,
    ("listener", "STOP"): 3,
    ("listener", "descriptors"): 2,
    ("forkserver", "KILL"): 10,
    ("forkserver", "TERM"): 3,
    ("forkserver", "STOP"): 3,
    ("forkserver", "descriptors"): 2,
    ("forkserver", "memory"): 2,
    ("slurmd", "KILL"): 1,
    ("slurmd", "STOP"): 1,
    ("stepd", "KILL"): 14,
    ("stepd", "TERM"): 4,
    ("stepd", "STOP"): 5,
    ("stepd", "descriptors"): 3,
    ("stepd", "memory"): 2,
    ("runner", "KILL"): 8,
    ("runner", "TERM"): 3,
    ("runner", "STOP"): 3,
    ("client", "KILL"): 10,
    ("client", "TERM"): 5,
    ("client", "STOP"): 4,
    ("task", "KILL"): 8,
    ("task", "TERM"): 4,
    ("task", "STOP"): 4,
    ("machine", "full"): 4,
    ("all", "KILL"): 3,
}
_AFTERMATH = 3.0  # seconds in which what begins may still meet the consequences
_BREATH = 0.3  # seconds in which what had to wait is served
_MEMORY = 2 << 20


@dataclass
class Window:
    """A time in which the service is not itself; without `until` it lasts to the next daemon's readiness."""

    target: str
    how: str
    opened: float
    until: float | None
    over: float = 0.0  # when the fault itself was

    @property
    def excuses(self) -> bool:
        """Whether nobody can ask the service to answer meanwhile."""
        return self.target in ("daemon", "listener") or (self.target, self.how) == ("forkserver", "STOP")


class Faults:
    """Strikes the node of `service` and the clients of `works`."""

    def __init__(self, node: Node, service: Service, works: Works, rng: random.Random, spared: Collection[str]) -> None:
        self._node, self._service, self._works, self._rng = node, service, works, rng
        self._spared = spared
        self._windows: list[Window] = []
        self._undo: list[tuple[float, Callable[[], object]]] = []
        self.counted: Counter[str] = Counter()
        self.excused: list[tuple[float, float]] = []
        self.struck: list[tuple[float, str]] = []  # when, and what

    def just_before(self, began: float, ended: float) -> str:
        """The faults of the seconds before and during a time, each with how long after its beginning it was."""
        near = [(at - began, what) for at, what in self.struck if began - _AFTERMATH < at < ended]
        return ", ".join(f"{what} at {since:+.2f} s" for since, what in near) or "no fault"

    def known(self, only: int = 0) -> list[Process]:
        """All, or that one at once: while all are looked at, a forkserver's child becomes a stepd."""
        return found(self._service.pid, self._node.cgroup_name, self._node.steps, only)

    def strike(self) -> bool:
        """One fault, as it comes; False where there was nobody to strike."""
        drawn = [(fault, weight) for fault, weight in DRAWN.items() if fault[0] not in self._spared]
        target, how = self._rng.choices([fault for fault, _ in drawn], [weight for _, weight in drawn])[0]
        if not self._service.up or self._service.ending:
            if target in ("daemon", "all", "forkserver"):
                return False  # a forkserver that dies in a daemon's start takes it along
        elif target in ("daemon", "all", "listener") and any(w.target in ("daemon", "listener") for w in self._windows):
            return False
        struck = self._machine() if target == "machine" else self._all() if target == "all" else self._one(target, how)
        self.counted[f"{target} {how}"] += struck
        if struck:
            self.struck.append((time.monotonic(), f"{target} {how}"))
        return struck

    def _one(self, target: str, how: str) -> bool:
        if target == "client":
            running = [work for work in self._works.running.values() if work.client]
            if not running:
                return False
            work = self._rng.choice(running)
            assert work.client is not None
            work.suffered.append((target, how))
            work.client.send_signal(getattr(signal, f"SIG{how}"))  # not waited for, so that nobody else has its number
            if how == "STOP":
                self._later(functools.partial(work.client.send_signal, signal.SIGCONT))
            return True
        victims = [process for process in self.known() if process.kind == target]
        if target == "daemon" and not self._service.up:
            return False
        return bool(victims) and self._hit(self._rng.choice(victims), how)

    def _hit(self, victim: Process, how: str) -> bool:
        seconds = self._rng.uniform(0.05, 1.0)
        if victim.kind in SERVICE:
            to_readiness = victim.kind == "daemon" and how in ("KILL", "TERM")
            self._window(victim.kind, how, None if to_readiness else seconds)
        for work in self._works.running.values():
            if work.name == victim.name or victim.kind == RUNNER:  # to which its order may be on its way
                work.suffered.append((victim.kind, how))
        if victim.kind == "daemon":
            self._service.struck = self._service.struck or how == "STOP" or how in ("descriptors", "memory")
            self._service.forgiven = self._service.forgiven or how == "memory"
        if victim.kind == "daemon" and how in ("KILL", "TERM"):
            self._service.end(getattr(signal, f"SIG{how}"), self._rng.choice((0.0, 0.0, self._rng.uniform(0, 1))))
            return True
        if how == "descriptors":
            return self._scarce(
                victim, resource.RLIMIT_NOFILE, _open_descriptors(victim.pid) + self._rng.randint(0, 6), seconds
            )
        if how == "memory":
            return self._scarce(victim, resource.RLIMIT_AS, _size(victim.pid) + self._rng.randrange(_MEMORY), seconds)
        if not victim.signal(getattr(signal, f"SIG{how}"), self.known):
            return False
        if how == "STOP":
            self._later(lambda: victim.signal(signal.SIGCONT, self.known), seconds)
        return True

    def tell_to_end(self) -> bool:
        """The daemon is to end in good order, and another follows."""
        daemon = next((process for process in self.known() if process.kind == "daemon"), None)
        return daemon is not None and self._hit(daemon, "TERM")

    def _scarce(self, victim: Process, kind: int, limit: int, seconds: float) -> bool:
        """Less of something than it may need; the soft limit, so that its children may raise theirs."""
        if limit <= 6 or victim not in self.known(victim.pid) or _is_kept(victim):
            return False
        try:
            soft, hard = resource.prlimit(victim.pid, kind)
            resource.prlimit(victim.pid, kind, (min(limit, soft) if soft >= 0 else limit, hard))
        except OSError:
            return False

        def enough() -> None:
            with contextlib.suppress(OSError):
                if victim in self.known(victim.pid):
                    resource.prlimit(victim.pid, kind, (soft, hard))

        self._later(enough, seconds)
        return True

    def _machine(self) -> bool:
        """The runtime directory's file system has no room."""
        filler = self._node.steps.parent / "filler"
        if filler.exists():
            return False
        self._window("machine", "full", 1.5)
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        self._later(lambda: filler.unlink(missing_ok=True), self._rng.uniform(0.1, 1.5))
        return True

    def _all(self) -> bool:
        """Everything of nodectl's at one moment; tasks are left alone."""
        for process in self.known():
            if process.kind in ("listener", "forkserver", "stepd"):
                self._hit(process, "KILL")
        daemon = next((process for process in self.known() if process.kind == "daemon"), None)
        return daemon is not None and self._hit(daemon, "KILL")

    def _window(self, target: str, how: str, seconds: float | None) -> None:
        now = time.monotonic()
        until = None if seconds is None else now + seconds + _AFTERMATH
        self._windows.append(Window(target, how, now, until, now + (seconds or 0)))
        for work in self._works.running.values():
            work.suffered.append((target, how))

    def meet(self) -> list[tuple[str, str]]:
        """What a step that begins now may suffer from."""
        return [(window.target, window.how) for window in self._windows]

    def _later(self, what: Callable[[], object], seconds: float | None = None) -> None:
        at = time.monotonic() + (self._rng.uniform(0.05, 1.0) if seconds is None else seconds)
        self._undo.append((at, what))

    def tick(self, *, all_of_it: bool = False) -> None:
        """Makes good what is due, and closes the windows of what is over."""
        now = time.monotonic()
        due = [entry for entry in self._undo if all_of_it or entry[0] <= now]
        self._undo = [entry for entry in self._undo if entry not in due]
        for _, undo in due:
            undo()
        for window in list(self._windows):
            over = self._service.up if window.until is None else now > window.until
            if over or (all_of_it and window.until is not None):
                self._windows.remove(window)
                if window.excuses:
                    self.excused.append((window.opened, _BREATH + (now if window.until is None else window.over)))
        if not any(window.target == "daemon" for window in self._windows):
            self._service.struck = self._service.forgiven = False


def _is_kept(victim: Process) -> bool:
    """Whether it will serve other steps, too, which do not know what it suffers."""
    return victim.kind == STEPD and cgroup_of(victim.pid).endswith(f"/{RUNNERS}")


def _open_descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _size(pid: int) -> int:
    """Bytes of its address space."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 0
