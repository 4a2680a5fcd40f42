"""Usage of steps without a cgroup: sums over the processes below the steps' runners, from /proc/PID/stat.

A runner adopts orphans of its step's processes, so all of these descend from it, and the usage of ended ones is
included in the usage of its children (proc(5), cutime). One look at /proc serves all steps: some ten microseconds for
each process of the machine, in slices between which the event loop goes on.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import NamedTuple

from nodectl.kernel import pseudo_file
from nodectl.launch.cgroup.usage import Usage

_SLICE = 64  # processes, a millisecond
_MOST_PROCESSES = 16_384  # of the machine; with more, no process is looked at
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = 1 / os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """The usage of a process. CPU time is in the kernel's ticks.

    `spent` is the time of the process, `waited` the time of children it has collected, with their children. `resident`
    is in pages.
    """

    parent: int
    group: int
    spent: int
    waited: int
    resident: int


class Processes:
    """The processes of the machine at a moment, by pid."""

    __slots__ = ("_below", "_found")

    def __init__(self, found: Mapping[int, Process]) -> None:
        self._found = found
        self._below: dict[int, list[int]] = {}
        for pid, process in found.items():
            self._below.setdefault(process.parent, []).append(pid)

    def used(self, runner: int, before: float) -> Usage:
        """Return the usage of the programs of the runner's step, with all descendants.

        `before` is the result of `spent_by_children` when the step began, in seconds.
        """
        if runner not in self._found:
            return Usage(None, None, None, None, {})
        ticks, resident, seen = self._found[runner].waited, 0, set[int]()
        # Processes in the runner's own group copy streams for it, or have not executed a program yet.
        waiting = [pid for pid in self._below.get(runner, ()) if self._found[pid].group != runner]
        while waiting:
            pid = waiting.pop()
            if pid in seen:
                continue  # a pid reused while /proc was read
            seen.add(pid)
            process = self._found[pid]
            ticks += process.spent + process.waited
            resident += process.resident
            waiting += self._below.get(pid, ())
        return Usage(max(0.0, ticks * _TICK - before), resident * _PAGE if seen else None, None, None, {})


async def of_steps(steps: Mapping[tuple[int, int], tuple[int, float]]) -> Mapping[tuple[int, int], Usage]:
    """Return the present usage of each step. `steps` holds the runner's pid and `spent_by_children` at the start."""
    if not steps:
        return {}
    there = await _processes()
    return {key: there.used(runner, before) for key, (runner, before) in steps.items()}


async def _processes() -> Processes:
    """Return the present processes of the machine, or none for a machine with more than 16,384."""
    names = [name for name in os.listdir("/proc") if name.isdecimal()]
    found: dict[int, Process] = {}
    if len(names) > _MOST_PROCESSES:
        return Processes(found)
    for number, name in enumerate(names):
        if number % _SLICE == 0:
            await asyncio.sleep(0)
        process = _read(int(name))
        if process is not None:
            found[int(name)] = process
    return Processes(found)


def spent_by_children(pid: int) -> float:
    """Return the CPU seconds of the process's collected children, which may belong to earlier steps of a runner."""
    process = _read(pid)
    return 0.0 if process is None else process.waited * _TICK


def _read(pid: int) -> Process | None:
    """Return the usage of a process, None if gone. A zombie still has values."""
    try:
        fields = pseudo_file.read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    except OSError:
        return None
    return Process(
        parent=int(fields[1]),
        group=int(fields[2]),
        spent=int(fields[11]) + int(fields[12]),
        waited=int(fields[13]) + int(fields[14]),
        resident=int(fields[21]),
    )
