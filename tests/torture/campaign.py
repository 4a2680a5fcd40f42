"""A campaign against one real node: faults at random, mutated messages, hostile users; then what came of it all.

Runs in mount and PID namespaces of its own (`torture.py`): the runtime directory is a small file system that can be
full, and nothing that is started outlives the campaign.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rootful.fuse import unanswered_file
from rootful.node import OTHER, Node
from torture import foes, inside, storm
from torture.faults import Faults
from torture.foe import HOSTILE
from torture.judge import LOST, RIGHT, judge
from torture.probe import Probe
from torture.processes import found, strangers
from torture.service import Service
from torture.works import Work, Works, draw

_WORKS = 5  # clients at a time
_SAME_PLUGINS = 20  # works
_ROOM = "size=24m,mode=755"
_PATIENCE = 90.0  # seconds for what has to end
_BETWEEN_FAULTS = 0.15  # seconds, on average
_TURN = 2.0  # seconds of one hostile client beside the faults
_STALLED = 60.0
_TIMES_AS_LONG = 4
_LISTED = 10_000
_MINUTE = 60.0
_LOG_ERRORS = ("Traceback (most recent call last)", "InternalError")


@dataclass
class Tally:
    """What was counted."""

    faults: int = 0
    right: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    sent: int = 0
    descriptors: int = 0
    internal: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    growth: float = 0.0  # MiB of the service's memory
    ends: int = 0  # daemons that were told to end in an attack
    started: int = 0  # steps of others that began and ended in an attack


class Campaign:
    """`say` is told how far it is."""

    def __init__(self, seed: int, kinds: Sequence[str], spared: Sequence[str], say: Callable[[str], None]) -> None:
        self.rng = random.Random(seed)
        self.tally = Tally()
        self._kinds = kinds
        self._spared = spared
        self._say = say
        self._stack = contextlib.ExitStack()
        self._fuse = contextlib.ExitStack()
        self.node = Node(history_limit=1_000_000, max_steps_per_user=100)
        self._number = 0
        self._files = 0
        self._foes: list[int] = []
        self.phases: dict[str, tuple[float, float]] = {}

    def __enter__(self) -> Campaign:
        inside.mark(self.node.dir, self.node.base)
        runtime = Path(str(self.node.values["runtime_dir"]))
        self._stack.callback(self.node.close)
        runtime.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", _ROOM, "nodectl-torture", runtime], check=True)
        self._stack.callback(lambda: subprocess.run(["umount", "-l", runtime], check=False))
        self._mount()
        self._stack.callback(self._fuse.close)
        self.service = Service(self.node)
        self._stack.callback(self.service.stop)
        self.works = Works(self.node)
        self._stack.callback(self.works.kill)
        self._stack.callback(self._disperse)
        self.faults = Faults(self.node, self.service, self.works, self.rng, self._spared)
        self.service.start()
        if not self.service.wait():
            raise RuntimeError(f"the daemon did not start: {self.node.logged()[-2000:]}")
        self.probe = Probe(self.node.socket, self.node.dir / "probe", OTHER)
        self._stack.callback(self.probe.stop)
        return self

    def _mount(self) -> None:
        """The file that nobody may close: a new one, and the closes of an earlier one end."""
        self._fuse.close()
        self._file = ""
        if "unanswered" in self._kinds and os.path.exists("/dev/fuse"):
            self._files += 1
            self._file = str(self.node.scratch / f"unanswered{self._files}")
            self._fuse.enter_context(unanswered_file(Path(self._file)))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # The phases.

    def strike(self, seconds: float, least: int, most: int) -> None:
        """Faults at random, a hostile client beside them; a busy machine has some times as long for the least."""
        with self._phase("faults"):
            end, due, turn = time.monotonic() + seconds, 0.0, 0.0
            while self.tally.faults < most:
                if time.monotonic() > (end if self.tally.faults >= least else end + _TIMES_AS_LONG * seconds):
                    break
                self._turn(_WORKS)
                now = time.monotonic()
                if now >= due and self.faults.strike():
                    self.tally.faults += 1
                    due = now + self.rng.expovariate(1 / _BETWEEN_FAULTS)
                if self._kinds and now >= turn:
                    self._disperse()
                    self._foe(self.rng.choice(self._kinds))
                    turn = now + _TURN
                self._say(f"{self.tally.faults} faults, {len(self.works.over)} steps, {max(end - now, 0):.0f} s")
            self._disperse()
            self._settle()

    def attack(self, seconds: float, ends: int) -> None:
        """All hostile clients together, and others' steps; the daemon is told to end now and then."""
        with self._phase("attack"):
            self._mount()
            for kind in self._kinds:
                self._foe(kind)
            begun, before = time.monotonic(), len(self.works.over)
            times = sorted(self.rng.uniform(0.1, 0.9) * seconds for _ in range(ends))
            while time.monotonic() < begun + seconds or self.service.ending or not self.service.up:
                self._turn(3)
                late = self.service.ends_late and self.service.ending
                if late or time.monotonic() > begun + seconds + _PATIENCE:
                    self._fuse.close()  # what holds the daemon must let go, or nothing goes on
                if time.monotonic() > begun + seconds + 2 * _PATIENCE:
                    break
                if times and self.service.up and time.monotonic() > begun + times[0]:
                    times.pop(0)
                    self.tally.ends += self.faults.tell_to_end()
                self._say(f"attack: {len(self.works.over) - before} steps, {self.tally.ends} daemons ended")
            self._disperse()
            self._settle()
            self.tally.started = len(self.works.over) - before

    def pelt(self, count: int) -> None:
        """Mutated messages, from two processes; a few first, so that what is kept for good is there."""
        with self._phase("messages"):
            self._mount()  # else the senders' user would have to wait for what was not closed for them before
            self._storm(max(count // 20, 200))
            self._mount()
            self._settle()
            log, pids, before = len(self.node.logged()), self._core(), self._memory()
            self._storm(count - max(count // 20, 200))
            self._settle()
            time.sleep(1)
            self.tally.growth = self._memory() - before
            if self._core() != pids:
                self.tally.deaths.append(f"daemon and forkserver were {pids}, are {self._core()}")
            logged = self.node.logged()[log:]
            if any(word in logged for word in _LOG_ERRORS):
                self.tally.internal.append(f"the log: {logged[-3000:]}")

    def _storm(self, count: int) -> None:
        senders = [storm.begin(self.node.socket, (count + half) // 2, self._file, self.rng.getrandbits(32))
                   for half in range(2)]  # fmt: skip
        heard = [b"", b""]
        moved = time.monotonic()
        for _, pipe in senders:
            os.set_blocking(pipe, False)
        waiting = {0, 1}
        while waiting:
            self._turn(1)
            for at in sorted(waiting):
                with contextlib.suppress(BlockingIOError):
                    data = os.read(senders[at][1], 65536)
                    heard[at] = (heard[at] + data)[-65536:]
                    moved = time.monotonic()
                    if not data:
                        waiting.discard(at)
            if time.monotonic() - moved > _STALLED:
                self.tally.deaths.append(f"no message went through for {_STALLED:.0f} s")
                break
            self._say(f"messages: {sum(int(_last(part, complete=False) or 0) for part in heard)} of {count}")
        for (pid, pipe), said in zip(senders, heard, strict=True):
            os.close(pipe)
            self._foes.append(pid)
            self._count(said)
        self._disperse()

    def _count(self, said: bytes) -> None:
        text = _last(said, complete=True)
        if not text.startswith("{"):
            self.tally.deaths.append("a sender ended before it had sent everything")
            return
        facts = json.loads(text)
        self.tally.sent += facts["sent"]
        self.tally.descriptors += facts["descriptors"]
        self.tally.internal += facts["internal"]

    # What goes on all the time.

    def _turn(self, works: int) -> None:
        self._mind()
        if len(self.works.running) < works:
            self._number += 1
            if self._number % _SAME_PLUGINS == 0:
                self.works.change_plugins()
            work = draw(self.rng, self._number)
            work.suffered += self.faults.meet()
            self.works.begin(work)
        time.sleep(0.005)

    def _mind(self) -> None:
        self.service.tick()
        self.works.collect()
        self.faults.tick()
        self._reap()

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = (begun, time.monotonic())

    def _foe(self, kind: str) -> None:
        self._foes.append(foes.begin(kind, self.node.socket, self.node.steps, self._file, self.rng.getrandbits(32)))

    def _disperse(self) -> None:
        """Ends the hostile clients; one that waits for its file system ends when that does."""
        for pid in self._foes:
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        self._foes = [pid for pid in self._foes if not os.waitpid(pid, os.WNOHANG)[0]]

    def _settle(self) -> None:
        """Nothing strikes any more: every client ends, and the service is there."""
        self.faults.tick(all_of_it=True)
        end = time.monotonic() + _PATIENCE
        while (self.works.running or not self.service.up) and time.monotonic() < end:
            self._mind()
            time.sleep(0.01)
        for name in list(self.works.running):
            self.tally.wrong.append(f"{name} has not ended: {self.works.running[name].words}, "
                                    f"suffered {self.works.running[name].suffered}")  # fmt: skip
        self.works.kill()
        self.works.collect()

    # What came of it.

    def conclude(self) -> None:
        """Looks for what is left, and judges each step."""
        self._fuse.close()
        self._end_strangers_steps()
        self.samples = self.probe.samples()
        with contextlib.suppress(AssertionError):
            self.node.assert_clean()
        self.tally.left += [*self.node.leftovers(), *(f"process {process}" for process in self.node.processes())]
        records = self._records()
        for work in self.works.over.values():
            self._judge(work, records.get(work.name))
        self.tally.deaths += self.service.failures
        self.service.failures = []
        self.probe.stop()
        self.service.stop()
        self.tally.deaths += self.service.failures
        end = time.monotonic() + 10
        while (left := strangers(set())) and time.monotonic() < end:
            self._reap()
            time.sleep(0.05)
        self.tally.left += left

    def _end_strangers_steps(self) -> None:
        """A step that a hostile user launched and suspended would never end."""
        steps: list[dict[str, object]] = self.node.call("List")["steps"]  # type: ignore[assignment]
        for step in steps:
            if step["uid"] == HOSTILE.pw_uid:
                self.node.call("Signal", job=step["job"], step=step["step"], signal=int(signal.SIGKILL))

    def _judge(self, work: Work, record: dict[str, object] | None) -> None:
        self.works.read(work, None if record is None else int(str(record["job"])))
        verdict, why = judge(work, record)
        if verdict == RIGHT:
            self.tally.right += 1
        else:
            (self.tally.lost if verdict == LOST else self.tally.wrong).append(why)

    def _records(self) -> dict[str, dict[str, object]]:
        """Of every step, by its name."""
        records: dict[str, dict[str, object]] = {}
        told = 0
        while True:
            steps: list[dict[str, object]] = self.node.call("List", ended=_LISTED, skip=told)["steps"]  # type: ignore[assignment]
            records |= {str(step["name"]): step for step in steps}
            if not (ended := sum("ended" in step for step in steps)):
                return records
            told += ended

    def _core(self) -> list[int]:
        processes = found(self.service.pid, self.node.cgroup_name, self.node.steps)
        return sorted(process.pid for process in processes if process.kind in ("daemon", "forkserver"))

    def _memory(self) -> float:
        """MiB that the service's processes have to themselves, with their share of the rest."""
        total = 0
        for process in found(self.service.pid, self.node.cgroup_name, self.node.steps):
            if process.kind in ("daemon", "forkserver", "listener"):
                with contextlib.suppress(OSError):
                    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
                    total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total / 1024


def _last(said: bytes, *, complete: bool) -> str:
    """The last whole line."""
    lines = said.decode(errors="replace").split("\n")
    found_lines = [line for line in lines[:-1] if complete or line.isdecimal()]
    return found_lines[-1] if found_lines else ""


class _Told:
    at = 0.0


def progress(line: str) -> None:
    """For a person who watches, all the time; where nobody does a line a minute, for who looks later."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    elif line and time.monotonic() - _Told.at > _MINUTE:
        _Told.at = time.monotonic()
        load = os.getloadavg()[0]
        print(f"torture: {time.strftime('%H:%M')} {line}; load {load:.1f}", file=sys.stderr, flush=True)
