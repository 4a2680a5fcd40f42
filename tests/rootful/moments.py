"""A client that gets a signal at a moment of its life: when it enters its Nth system call, by `moments.c`.

A mode is walked from its first system call to the last one, or as far as it waits for its step. A walk takes some of
them, more of those behind the imports; NODECTL_TEST_MOMENTS says how many, `all` means each.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import struct
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rootful.at_terminal import at_terminal
from rootful.node import PATIENCE, wait_until

CLIENT = f"{sysconfig.get_path('scripts')}/nodectl"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
_HERE = Path(__file__).parent
_NUMBERS = "3q"
_LAST = 200  # system calls, behind most of the imports
_FEW, _ALL = 24, 100
_STILL, _SELDOM = 0.5, 8  # seconds; system calls of who looks around meanwhile
_INTERRUPTED = b"one more within 1 sec"


class Outcome(NamedTuple):
    """How a client ended that got a signal, and what was written to its stdout and stderr; `helped`: it got a SIGTERM
    behind that. One that came to its step in fewer system calls than expected got that alone.
    """

    moment: int
    number: signal.Signals
    status: int
    out: str
    err: str
    helped: bool

    @property
    def died(self) -> bool:
        """Of a signal that it got, or as Python's commands do of a Ctrl-C and those that wait for a turn of any."""
        numbers = (self.number, signal.SIGTERM) if self.helped else (self.number,)
        return any(self.status in (-number, 128 + number) for number in numbers)

    @property
    def reached(self) -> bool:
        """Whether its task got the signal, or what followed a Ctrl-C."""
        last = signal.SIGTERM if self.helped else self.number
        if self.helped and self.number != signal.SIGINT:
            return False
        return f"got {last.name[3:]}" in self.out or self.status == 128 + last


class Programs:
    """Both programs, where any user finds them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.tracer, self.awaits = directory / "moments", directory / "awaits"
        for path in (self.tracer, self.awaits):
            source = _HERE / f"{path.name}.c"
            subprocess.run(["cc", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o", path, source], check=True)
            path.chmod(0o755)

    @contextlib.contextmanager
    def notes(self) -> Iterator[Path]:
        path = self._directory / f"notes.{time.monotonic_ns()}"
        path.write_bytes(bytes(struct.calcsize(_NUMBERS)))
        path.chmod(0o666)
        try:
            yield path
        finally:
            path.unlink()


def noted(notes: Path) -> tuple[int, int, bool]:
    """The client's pid, its system calls, whether it got its signal."""
    pid, count, sent = struct.unpack(_NUMBERS, notes.read_bytes())
    return pid, count, bool(sent)


class Walk:
    """`words` of a command. `how`: who, where and with what variables. `waits`: its task waits for a signal. With
    `terminal` it is typed at one.
    """

    def __init__(
        self, programs: Programs, words: Sequence[str], *, waits: bool = True, few: int = _FEW,
        terminal: bool = False, **how: Any,
    ) -> None:  # fmt: skip
        self._programs = programs
        self._words = [CLIENT, *words]
        self._how = how
        self._waits = waits
        self._few = few
        self._terminal = terminal

    def outcomes(self, total: int) -> Iterator[Outcome]:
        """At each moment that is taken of so many, one signal after the other."""
        wanted = os.environ.get("NODECTL_TEST_MOMENTS", "")
        taken = range(1, total + 1) if wanted == "all" else _spread(total, int(wanted or self._few))
        for index, moment in enumerate(taken):
            yield self.at(moment, SIGNALS[index % len(SIGNALS)])

    def moments(self) -> int:
        """How many there are."""
        with self._programs.notes() as notes, self._started(notes, 0, 0) as (process, fds):
            if self._waits:
                wait_until(lambda: is_still(notes), "it waits for its step")
                pid, count, _ = noted(notes)
                os.kill(pid, signal.SIGTERM)
                self._to_the_end(fds, notes)
            else:
                self._to_the_end(fds, notes)
                _, count, _ = noted(notes)
            process.wait(PATIENCE)
        return count

    def at(self, moment: int, number: signal.Signals) -> Outcome:
        """A client that gets a signal then."""
        with self._programs.notes() as notes, self._started(notes, moment, number) as (process, fds):
            out, err, helped = self._to_the_end(fds, notes)
            status = process.wait(PATIENCE)
            if helped and not noted(notes)[2]:
                return Outcome(moment, signal.SIGTERM, status, out, err, helped=False)
            return Outcome(moment, number, status, out, err, helped)

    @contextlib.contextmanager
    def _started(
        self, notes: Path, moment: int, number: int
    ) -> Iterator[tuple[subprocess.Popen[bytes], tuple[int, int]]]:
        """It, and where its stdout and stderr are read."""
        words = [str(self._programs.tracer), str(notes), str(moment), str(int(number)), *self._words]
        if self._terminal:
            user = pwd.getpwuid(self._how["user"])
            with at_terminal(words, **{**self._how, "user": user}) as typed:
                os.close(typed.theirs)  # so that its end is seen
                typed.theirs = os.dup(typed.ours)
                yield typed.process, (typed.ours, typed.ours)
            return
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(words, **{**streams, **self._how}) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                yield process, (process.stdout.fileno(), process.stderr.fileno())
            finally:
                process.kill()  # and with it the client that is traced

    def _to_the_end(self, fds: tuple[int, int], notes: Path) -> tuple[str, str, bool]:
        """What it writes. A first Ctrl-C tells how the tasks are: then it gets a SIGTERM; and so where its task waits
        on.
        """
        out, err = fds
        said = {out: b"", err: b""}
        open_ones, helped = set(said), False
        end = time.monotonic() + PATIENCE
        while open_ones:
            ready = select.select(list(open_ones), [], [], _STILL)[0]
            assert time.monotonic() < end, f"it does not end at {noted(notes)}: {said}"
            for fd in ready:
                data = _read(fd)
                said[fd] += data
                if not data:
                    open_ones.discard(fd)
            is_stuck = self._waits and not ready and is_still(notes)
            if not helped and open_ones and (_INTERRUPTED in said[err] or is_stuck):
                helped = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(noted(notes)[0], signal.SIGTERM)
        return said[out].decode("utf-8", "replace"), said[err].decode("utf-8", "replace"), helped


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # a terminal that nobody has open
        return b""


def is_still(notes: Path) -> bool:
    """Whether it waits in a system call."""
    pid, count, _ = noted(notes)
    if not pid:
        return False
    time.sleep(_STILL)
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
    except OSError:
        return False
    return state == "S" and noted(notes)[1] <= count + _SELDOM


def _spread(total: int, few: int) -> list[int]:
    """Most of them among the last ones; all of the C client's, which are few."""
    if total <= _ALL:
        return list(range(1, total + 1))
    early = max(0, total - _LAST)
    many = few - (few // 4 if early else 0)
    late = total - early
    found = {early + 1 + index * late // many for index in range(many)} | {total}
    found |= {1 + index * early // (few // 4) for index in range(few // 4 if early else 0)}
    return sorted(found)
