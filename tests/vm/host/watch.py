"""Machines that run, until one has ended, of itself or because it showed no sign of life; and whose fault it is.

The emulator's faults are no result of a test: QEMU crashes, or does not answer its debugger, or its machine does not
take an interrupt that nothing in it can mask. What the machine's kernel says of itself is one: a panic, an oops, a task
that hangs in the kernel. Between the two lies a machine that stands still and whose kernel answers.
"""

from __future__ import annotations

import enum
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from vm.host.debugger import Debugger, attached
from vm.host.records import Line

LIFELESS = 120  # seconds without a sign of life, of which there is one every ten
SILENCE = 480  # seconds without a word of a machine that lives; each test's own limit (conftest.py) is less
QUIET = 30  # seconds without a word after which some of its CPUs may stand still
LAST_WORDS = 60  # seconds in which a kernel answers, or goes on to
OURS, DONE = "vm: ", "s: done"  # what `run` says, and the last of it, before the power-off
RESET = "sysrq: Resetting"  # the kernel's word where mid_step.py and mid_queue.py end
_TERMINAL = re.compile(r"\r|\x1bc|\x1b\[[0-9;?]*[a-zA-Z]")  # what the firmware says to one
_KERNEL = re.compile(r"^\[ *\d+\.\d+\] ?(?P<words>.*)$", re.MULTILINE)
_DEATH = re.compile(r"Kernel panic|\bBUG: |\bOops\b|general protection fault|soft lockup|blocked for more than")
_TASK = re.compile(r"^task:(?P<name>.{1,15}?) +state:(?P<state>\w)")
_DISK = re.compile(r"io_schedule|blk_|submit_bio|wait_on_page|folio_wait|wait_on_buffer|wait_on_bit_io")
_LOCK = "spin_lock_slowpath"


class Fate(enum.Enum):
    """How a machine ended."""

    OVER = enum.auto()  # switched off, or reset, as it was meant to be
    LATE = enum.auto()  # its time was over
    EMULATOR = enum.auto()  # by a fault of QEMU's
    GUEST = enum.auto()  # by a fault of what runs in it
    UNKNOWN = enum.auto()  # it stood still, and nothing tells why


@dataclass(frozen=True)
class End:
    """How machines ended, in words, and what the one that did said since its boot."""

    fate: Fate
    why: str = ""
    said: str = ""


@dataclass
class Watched:
    """A machine: QEMU's process and its log; console and serial line; its debugger's socket. What one `shown` says is
    the ring's, and is waited for.
    """

    process: subprocess.Popen[bytes]
    log: Path
    console: TextIO
    line: Line
    debugger: Path
    shown: bool = True
    said: str = ""

    def __post_init__(self) -> None:
        self.spoke = self.looked = self.line.heard = time.monotonic()

    def listen(self) -> None:
        """Reads what has come, and shows it."""
        self.line.listen()
        if text := self.console.read():
            self.said += text
            self.spoke = self.looked = time.monotonic()
            if self.shown:
                sys.stdout.write(_TERMINAL.sub("", text))
                sys.stdout.flush()

    def debug(self, do: Callable[[Debugger], None]) -> bool:
        """Whether QEMU has answered."""
        with suppress(OSError, ValueError), attached(self.debugger) as machine:
            do(machine)
            return True
        return False


def follow(machines: Sequence[Watched]) -> End:
    """Until one has ended. What the CPUs of a quiet one execute is translated again, and what those of others do that
    it may wait for.
    """
    while True:
        running = [machine.process.poll() is None for machine in machines]
        for machine in machines:
            machine.listen()
        if not all(running):
            return _of_exit(machines[running.index(False)])
        now = time.monotonic()
        for machine in machines:
            if now > max(machine.line.heard, machine.spoke) + LIFELESS:
                return _examine(machine, is_alive=False)
            if machine.shown and now > machine.spoke + SILENCE:
                return _examine(machine, is_alive=True)
            if machine.shown and now > machine.looked + QUIET:
                for one in machines:
                    one.debug(Debugger.translate_again)
                machine.looked = time.monotonic()
        time.sleep(0.2)


def _of_exit(machine: Watched) -> End:
    code, said = machine.process.returncode, machine.said
    if code in (124, 137):  # of timeout(1)
        return End(Fate.LATE, "the machine was not done in its time; its last words are above", said)
    if code != 0:
        name = signal.Signals(-code).name if code < 0 else str(code)
        return End(Fate.EMULATOR, f"qemu ended with {name} {_end_of(machine.log)}".strip(), said)
    return end_of_itself(said)


def end_of_itself(said: str) -> End:
    """Of a machine that switched itself off, or was reset: what it said since its boot tells whether it was to."""
    death = complaint(said)
    if DONE in said or RESET in said:
        return End(Fate.OVER, f"its kernel complained: {death}" if death else "", said)
    if death:
        return End(Fate.GUEST, f"its kernel died: {death}", said)
    if OURS not in said:
        return End(Fate.UNKNOWN, "the machine ended while it booted", said)
    return End(Fate.GUEST, "the machine was reset or switched off, by whom is not known", said)


def complaint(said: str) -> str:
    """The first line in which a kernel says that it, or a part of it, cannot go on; "" without one."""
    return next((line["words"] for line in _KERNEL.finditer(said) if _DEATH.search(line["words"])), "")


def _examine(machine: Watched, *, is_alive: bool) -> End:
    """Of one that has said nothing for long. An NMI makes its kernel tell what all tasks and CPUs do, and reset."""
    if death := complaint(machine.said):
        return End(Fate.GUEST, f"its kernel died: {death}", machine.said)
    before = len(machine.said)
    if not machine.debug(Debugger.interrupt):
        return End(Fate.EMULATOR, "qemu does not answer", machine.said)
    machine.spoke = time.monotonic()
    while machine.process.poll() is None and time.monotonic() < machine.spoke + LAST_WORDS:
        machine.listen()
        time.sleep(0.2)
    machine.listen()
    return blame(machine.said[before:], machine.said, is_alive=is_alive)


def blame(words: str, said: str, *, is_alive: bool) -> End:
    """Whose fault it is that a machine said nothing, by what its kernel answered to an NMI. One that gave signs of life
    all the time is alive.
    """
    lines = [line["words"] for line in _KERNEL.finditer(words)]
    if not lines:
        return End(Fate.EMULATOR, "an NMI, which no kernel can mask, is not answered", said)
    if any("int3" in line for line in lines):
        return End(Fate.EMULATOR, "CPUs trap at a breakpoint that is no longer in memory", said)
    if stuck := _stuck(lines):
        return End(Fate.GUEST, f"hangs in the kernel: {', '.join(stuck)}", said)
    if any(_LOCK in line for line in lines):
        return End(Fate.GUEST, "a CPU waits for a lock of the kernel's", said)
    if is_alive:
        return End(Fate.GUEST, f"nothing was said for {SILENCE} s, and the machine lives", said)
    return End(Fate.UNKNOWN, f"no program has run for {LIFELESS} s, and the kernel answers", said)


def _stuck(lines: Sequence[str]) -> list[str]:
    """The tasks that cannot be interrupted, as the kernel lists them with their traces; but who waits for a disk waits
    for QEMU.
    """
    found, name, trace = [], "", ""
    for line in (*lines, "task:end             state:R"):
        if (task := _TASK.match(line)) is None:
            trace += f"{line}\n"
            continue
        if name and not _DISK.search(trace):
            found.append(name)
        name, trace = task["name"] if task["state"] == "D" else "", ""
    return found


def _end_of(log: Path) -> str:
    """Its last words, without what it says of each CPU at each start."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(line for line in lines if ": warning: TCG " not in line)[-2000:]
