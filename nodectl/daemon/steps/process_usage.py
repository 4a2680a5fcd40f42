"""What steps use that run in no cgroup: sums over the processes below their runners, as /proc/PID/stat tells them.

A runner adopts what its step's processes leave behind, so all of them descend from it, and what those used that have
ended is among what its children used (proc(5), cutime). One look at /proc serves all steps: some ten microseconds for
each process of the machine, in slices between which the event loop goes on.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import NamedTuple

from nodectl.cgroup.usage import Usage
from nodectl.kernel import pseudo_file

_SLICE = 64  # processes, a millisecond
_MOST_PROCESSES = 16_384  # of the machine; of more nobody looks at any
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = 1 / os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """CPU time in the kernel's ticks: `spent` by the process itself, `waited` by children that it has collected, with
    theirs. `resident`: pages.
    """

    parent: int
    group: int
    spent: int
    waited: int
    resident: int


class Processes:
    """Those of one moment, by pid."""

    __slots__ = ("_below", "_found")

    def __init__(self, found: Mapping[int, Process]) -> None:
        self._found = found
        self._below: dict[int, list[int]] = {}
        for pid, process in found.items():
            self._below.setdefault(process.parent, []).append(pid)

    def used(self, runner: int, before: float) -> Usage:
        """By the programs of the step of this runner, and by what they have started. `before`: seconds that
        `spent_by_children` gave when the step began.
        """
        if runner not in self._found:
            return Usage(None, None, None, None, {})
        ticks, resident, seen = self._found[runner].waited, 0, set[int]()
        # What is in the runner's own process group copies streams for it, or is no program yet.
        waiting = [pid for pid in self._below.get(runner, ()) if self._found[pid].group != runner]
        while waiting:
            pid = waiting.pop()
            if pid in seen:
                continue  # numbers that were used again while they were read
            seen.add(pid)
            process = self._found[pid]
            ticks += process.spent + process.waited
            resident += process.resident
            waiting += self._below.get(pid, ())
        return Usage(max(0.0, ticks * _TICK - before), resident * _PAGE if seen else None, None, None, {})


async def of_steps(steps: Mapping[tuple[int, int], tuple[int, float]]) -> Mapping[tuple[int, int], Usage]:
    """By their numbers, what they use now. Given are their runners' pids, and what `spent_by_children` gave."""
    if not steps:
        return {}
    there = await _processes()
    return {key: there.used(runner, before) for key, (runner, before) in steps.items()}


async def _processes() -> Processes:
    """Of the machine, now; none where there are too many."""
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
    """Seconds of CPU time of those that the process has collected: a runner may have served steps before."""
    process = _read(pid)
    return 0.0 if process is None else process.waited * _TICK


def _read(pid: int) -> Process | None:
    """None where it has gone; one that has ended and was not collected still tells what it has spent."""
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
