"""What jobs write of themselves while they run, and what is wrong with it.

Each job's script appends two lines to one file, with nothing but what the shell has built in: what it held and since
when, and that it ended. The times lie inside the job's allocation, so two jobs whose times overlap held what they name
at the same time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodectl.model.cpu_list import parse_cpulist

_TICK = 0.011  # /proc/uptime counts hundredths of a second

SCRIPT = """#!/bin/sh
while read -r key value; do case $key in Cpus_allowed_list:) cpus=$value;; esac; done </proc/self/status
read -r now _ </proc/uptime
echo "b $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $now $cpus ${{SLURM_JOB_GPUS:--}}" >>{diary}
{work}
read -r now _ </proc/uptime
echo "e $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $now" >>{diary}
"""


@dataclass
class Stay:
    """One job's time on the machine. `ended` is None where it was ended before it could say so."""

    job: int
    restart: int
    begun: float
    cpus: frozenset[int]
    devices: frozenset[str]
    ended: float | None = None


class Diary:
    """The file as it is now."""

    def __init__(self, path: Path) -> None:
        self.stays: dict[tuple[int, int], Stay] = {}
        self.wrong: list[str] = []
        for line in path.read_text(encoding="ascii").splitlines():
            self._read(line)

    def _read(self, line: str) -> None:
        kind, job, restart, *rest = line.split()
        key = int(job), int(restart)
        if kind == "e":
            self.stays[key].ended = float(rest[0])
            return
        if key in self.stays:
            self.wrong.append(f"job {job} was started twice, restart {restart}")
        devices = frozenset() if rest[2] == "-" else frozenset(rest[2].split(","))
        self.stays[key] = Stay(*key, float(rest[0]), frozenset(parse_cpulist(rest[1])), devices)

    def started(self) -> Counter[int]:
        """How often each job was."""
        return Counter(job for job, _ in self.stays)

    def given_twice(self) -> list[str]:
        """CPUs and devices that two jobs held at a time, in words."""
        by_thing: dict[str, list[Stay]] = defaultdict(list)
        for stay in self.stays.values():
            for thing in _things(stay):
                by_thing[thing].append(stay)
        return [words for thing, stays in by_thing.items() for words in _overlaps(thing, stays)]


def _things(stay: Stay) -> Iterator[str]:
    yield from (f"CPU {cpu}" for cpu in stay.cpus)
    yield from (f"device {device}" for device in stay.devices)


def _overlaps(thing: str, stays: Iterable[Stay]) -> Iterator[str]:
    latest: Stay | None = None
    for stay in sorted(stays, key=lambda one: one.begun):
        if latest is not None and latest.ended is not None and stay.begun < latest.ended - _TICK:
            yield f"{thing} was job {latest.job}'s until {latest.ended} and job {stay.job}'s since {stay.begun}"
        if latest is None or (latest.ended or latest.begun) < (stay.ended or stay.begun):
            latest = stay
