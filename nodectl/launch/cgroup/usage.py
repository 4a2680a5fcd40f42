"""The usage of a step's processes, as readable by any user from the cgroup's files (cgroup-v2.rst of Linux)."""

from __future__ import annotations

import os

from nodectl.kernel import pseudo_file
from nodectl.launch.cgroup.tree import find_mount
from nodectl.model.value_class import dataclass

RESOURCES = ("cpu", "memory", "io")
_PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_LOOKED_AT = 512
"""How many cgroups and processes of a step are looked at one by one, where the kernel does not tell its memory."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums and levels at a moment; None for a figure missing on this machine.

    `pressure` is how much of the last ten seconds something of the step waited for the resource, in percent.
    """

    cpu_seconds: float | None
    memory: int | None
    read: int | None
    written: int | None
    pressure: dict[str, float]


class UsageReader:
    """A reader of usage below the mount point of cgroup2.

    `in_all`: how many cgroups and processes the reader looks at one by one; without it MOST_LOOKED_AT of each step.
    """

    def __init__(self, mount: str | None = None, in_all: int | None = None) -> None:
        self._left = in_all
        self._mount = mount
        if mount is None:
            try:
                self._mount = find_mount()
            except OSError:
                self._mount = None

    def read(self, cgroup: str) -> Usage:
        """Read the usage of a step's programs, without the stepd. `cgroup` is the step's, as in the step's record."""
        if self._mount is None or not cgroup.startswith("/"):
            return Usage(None, None, None, None, {})
        base = f"{self._mount}{cgroup}/user"
        spent = pseudo_file.counters(f"{base}/cpu.stat").get("usage_usec")
        disks = _disks(_text(f"{base}/io.stat"))
        shares = {name: _pressure(_text(f"{base}/{name}.pressure")) for name in RESOURCES}
        pressure = {name: share for name, share in shares.items() if share is not None}
        return Usage(None if spent is None else spent / 1e6, self._memory(base), *disks, pressure)

    def _memory(self, base: str) -> int | None:
        """Return the memory charged by the kernel.

        Without the memory controller, return the sum of each process's resident memory.
        """
        charged = _text(f"{base}/memory.current").strip()
        if charged.isdecimal():
            return int(charged)
        memory, looked_at = _resident(base, MOST_LOOKED_AT if self._left is None else self._left)
        if self._left is not None:
            self._left -= looked_at
        return memory


def _text(path: str) -> str:
    return pseudo_file.read_if_any(path).decode("ascii", "replace")


def _pressure(text: str) -> float | None:
    for word in text.partition("\n")[0].split():
        name, _, value = word.partition("=")
        if name == "avg10":
            return float(value)
    return None


def _disks(text: str) -> tuple[int | None, int | None]:
    """Return the bytes read and written, of all disks."""
    words = [word.partition("=") for word in text.split()]
    if not words:
        return None, None
    sums = {name: sum(int(value) for key, _, value in words if key == name) for name in ("rbytes", "wbytes")}
    return sums["rbytes"], sums["wbytes"]


def _resident(base: str, most: int) -> tuple[int | None, int]:
    """Return the resident memory of the processes, and how many places were looked at.

    The memory is None where there are no processes or too many places.
    """
    resident = looked_at = 0
    found = False
    for directory, _, files in os.walk(base):
        pids = _text(f"{directory}/cgroup.procs").split() if "cgroup.procs" in files else []
        looked_at += 1 + len(pids)
        if looked_at > most:
            return None, most
        for pid in pids:
            words = _text(f"/proc/{pid}/statm").split()
            resident += int(words[1]) * _PAGE if len(words) > 1 else 0
        found = found or bool(pids)
    return resident if found else None, looked_at
