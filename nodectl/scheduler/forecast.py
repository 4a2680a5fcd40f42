"""Estimates of when jobs in line start, by counts: CPUs and memory of the whole machine over time.

Values only, in the daemon and in planning commands. The estimate knows time limits, but not which cores a job gets;
the start of the first job in line comes from the select plugin. Each job is put where it fits first, in their order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from nodectl.model.value_class import dataclass


@dataclass(slots=True)
class _Step:
    at: float
    cpus: int
    memory: int


class Forecast:
    """Free CPUs and memory over time.

    `cpus`, `memory`: free now. `ends`: times, each with the CPUs and memory given back.
    """

    def __init__(self, now: float, cpus: int, memory: int, ends: Iterable[tuple[float, int, int]]) -> None:
        self._steps = [_Step(now, cpus, memory)]
        for at, given_cpus, given_memory in sorted(ends):
            last = self._steps[-1]
            if at <= last.at:
                last.cpus, last.memory = last.cpus + given_cpus, last.memory + given_memory
            else:
                self._steps.append(_Step(at, last.cpus + given_cpus, last.memory + given_memory))

    def start(self, cpus: int, memory: int, seconds: float, *, not_before: float = 0.0) -> float | None:
        """Find and reserve the first start at which a job of this size fits for `seconds`; None where there is none."""
        steps = self._steps
        for first, step in enumerate(steps):
            start = max(step.at, not_before)
            after = steps[first + 1].at if first + 1 < len(steps) else float("inf")
            if start >= after:
                continue
            end = start + seconds
            if all(
                one.cpus >= cpus and one.memory >= memory
                for one in steps[first : bisect_left(steps, end, key=lambda one: one.at)]
            ):
                self._take(start, end, cpus, memory)
                return start
        return None

    def _take(self, start: float, end: float, cpus: int, memory: int) -> None:
        for at in (start, end):
            self._cut(at)
        for step in self._steps:
            if start <= step.at < end:
                step.cpus -= cpus
                step.memory -= memory

    def _cut(self, at: float) -> None:
        place = bisect_left(self._steps, at, key=lambda one: one.at)
        if place == len(self._steps) or self._steps[place].at != at:
            before = self._steps[place - 1]
            self._steps.insert(place, _Step(at, before.cpus, before.memory))
