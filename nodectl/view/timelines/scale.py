"""The scale of a picture: pixels for nanoseconds, with long idle times cut out. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodectl.model.words import spent_words
from nodectl.view.timelines.launch import Launch

CUT = 64.0  # pixels in the place of a long idle time
_TICK = 80.0  # at least, from one line to the next


@dataclass(frozen=True, slots=True)
class Stretch:
    """An uncut part of the time from `begin` to `end`; `x` is the position of the begin."""

    begin: int
    end: int
    x: float


class Scale:
    """The scale of a launch.

    A program that ran for an hour would leave nothing visible of the calls before and after it. So the longest time
    without calls is cut out while it is longer than all the rest.
    """

    def __init__(self, launch: Launch, per_pixel: float) -> None:
        self.per_pixel = per_pixel
        self.origin = launch.begin
        self.stretches: list[Stretch] = []
        x = 0.0
        for begin, end in shown(launch):
            self.stretches.append(Stretch(begin, end, x))
            x += (end - begin) / per_pixel + CUT
        self.width = x - CUT

    def x(self, at: int) -> float:
        """Return the position of a time with a call."""
        stretch = next(stretch for stretch in reversed(self.stretches) if stretch.begin <= at)
        return stretch.x + (min(at, stretch.end) - stretch.begin) / self.per_pixel

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield the positions of the lines behind the picture, and the times since the first call."""
        step = _step(self.per_pixel * _TICK)
        for place, stretch in enumerate(self.stretches):
            since = stretch.begin - self.origin
            if place:
                # The first line behind a cut shows the time there; further lines keep clear of it.
                yield stretch.x, spent_words(since // 1000)
                first = -(-(since + step // 2) // step) * step
            else:
                first = 0
            for at in range(first, stretch.end - self.origin + 1, step):
                yield stretch.x + (at - since) / self.per_pixel, time_words(at, step)

    def cuts(self) -> Iterator[tuple[float, int]]:
        """Yield the position and the length of each cut."""
        for before, after in zip(self.stretches, self.stretches[1:], strict=False):
            yield after.x - CUT, after.begin - before.end


def fitting(launches: Sequence[Launch], width: float) -> float:
    """Return the nanoseconds for a pixel, such that the longest launch is `width` wide."""
    found = []
    for launch in launches:
        parts = shown(launch)
        found.append(sum(end - begin for begin, end in parts) / (width - CUT * (len(parts) - 1)))
    return max(1.0, *found)


def shown(launch: Launch) -> list[tuple[int, int]]:
    """Return the times outside of the cuts."""
    calls = sorted((call.begin, call.end) for process in launch.processes for call in process.calls)
    idle, until = [], calls[0][1]
    for begin, end in calls[1:]:
        if begin > until:
            idle.append((begin - until, until, begin))
        until = max(until, end)
    whole = until - calls[0][0]
    cut = []
    for length, begin, end in sorted(idle, reverse=True):
        if length < whole - length:
            break
        whole -= length
        cut.append((begin, end))
    edges = [calls[0][0], *(edge for pair in sorted(cut) for edge in pair), until]
    return list(zip(edges[::2], edges[1::2], strict=True))


def time_words(nanoseconds: int, step: int) -> str:
    """Return a time on the scale, with the precision of the step."""
    unit, name = next((unit, name) for unit, name in ((10**9, "s"), (10**6, "ms"), (10**3, "us")) if step >= unit / 10)
    digits = max(0, math.ceil(math.log10(unit / step)))
    return f"{nanoseconds / unit:.{digits}f} {name}" if nanoseconds else "0"


def _step(least: float) -> int:
    power = 10 ** max(math.floor(math.log10(least)), 2)  # not less than is recorded
    return int(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least))
