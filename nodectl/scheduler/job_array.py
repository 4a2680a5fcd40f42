"""The waiting tasks of a job array, as a short text: "0-9:2,15". A million tasks are a few bytes.

A function costs as much as there are ranges, however many indices these have. Only ranges with steps that overlap are
expanded into their indices, a few thousand at the most, when their text is read. Values only, in the daemon, and in
commands.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from math import gcd

_RANGE = r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?\Z"  # compiled when it is wanted
_MOST_RANGES = 10_000
_MOST_EXPANDED = 10_000

Tasks = list[range]
"""Ascending ranges, none empty, each of which ends before the next one begins."""


def freely(units: int) -> None:
    """Accept any cost: the `spend` of a caller without a budget."""


def parse(text: str) -> tuple[Tasks, int]:
    """Parse sbatch's --array, as "0-9:2%3", into indices and the most tasks at a time, 0 for any. Raises ValueError."""
    indices, percent, limit = text.strip().partition("%")
    if percent and not (limit.isascii() and limit.isdecimal() and int(limit[:10]) > 0):
        raise ValueError(f"{text!r}: {limit!r} is no number of tasks")
    return tasks_of(indices), int(limit[:10]) if percent else 0


def tasks_of(text: str, spend: Callable[[int], None] = freely) -> Tasks:
    """Parse indices as "0-9:2,15" or "[0-3]".

    `spend` gets the number of ranges and indices before they are gone through. Raises ValueError, and any exception of
    `spend`.
    """
    ranges = []
    parts = text.strip().removeprefix("[").removesuffix("]").split(",")
    if len(parts) > _MOST_RANGES:
        raise ValueError(f"{len(parts)} ranges, {_MOST_RANGES} are the most")
    spend(len(parts))
    for part in parts:
        match = re.match(_RANGE, part.strip(), re.ASCII)
        if match is None:
            raise ValueError(f"{part[:100]!r} is no range of indices")
        first, last, step = match.groups()
        one = range(int(first), int(last or first) + 1, int(step or 1) or 1)
        if not one or step == "0":
            raise ValueError(f"{part[:100]!r} is no range of indices")
        ranges.append(one)
    return _united(ranges, spend)


def text_of(tasks: Tasks) -> str:
    """Return the text of the tasks, as read by `tasks_of`."""
    return ",".join(map(_text, tasks))


def size(tasks: Tasks) -> int:
    """Return the number of tasks."""
    return sum(map(len, tasks))


def span(tasks: Tasks) -> tuple[int, int, int, int]:
    """Return the number of tasks, the least and the greatest index, and the step; 1 for indices not evenly spaced."""
    step = tasks[0].step if len(tasks) == 1 and len(tasks[0]) > 1 else 1
    return size(tasks), tasks[0][0], tasks[-1][-1], step


def indices(tasks: Tasks) -> Iterator[int]:
    """Yield each index in order."""
    for one in tasks:
        yield from one


def indices_from(tasks: Tasks, first: int) -> Iterator[int]:
    """Yield the indices from `first` on, in order."""
    for one in islice(tasks, max(0, bisect_right(tasks, first, key=_start) - 1), None):
        yield from one[max(0, -(-(first - one.start) // one.step)) :]


def has(tasks: Tasks, index: int) -> bool:
    """True where `index` is among the tasks."""
    place = bisect_right(tasks, index, key=_start)
    return place > 0 and index in tasks[place - 1]


def without(tasks: Tasks, index: int) -> Tasks:
    """Return the tasks without `index`."""
    place = bisect_right(tasks, index, key=_start) - 1
    if place < 0 or index not in tasks[place]:
        return tasks
    one = tasks[place]
    at = one.index(index)
    return [*tasks[:place], *(part for part in (one[:at], one[at + 1 :]) if part), *tasks[place + 1 :]]


def without_all(tasks: Tasks, others: Tasks) -> Tasks:
    """Return the tasks missing from `others`. Raises ValueError where more ranges would be left than are kept."""
    left: Tasks = []
    done = 0
    for place in sorted({place for other in others for place in _places_beside(other, tasks)}):
        left += tasks[done:place]
        for part in _cut(tasks[place], _beside(tasks[place], others)):
            left.append(part)
            if len(left) > _MOST_RANGES:
                raise ValueError(f"too many ranges would be left, {_MOST_RANGES} are the most")
        done = place + 1
    return left + tasks[done:]


def common(tasks: Tasks, others: Tasks) -> Tasks:
    """Return the tasks in both lists."""
    return list(_common(tasks, others))


def meet(tasks: Tasks, others: Tasks) -> bool:
    """True where the lists have a task in common."""
    return next(_common(tasks, others), None) is not None


def _common(tasks: Tasks, others: Tasks) -> Iterator[range]:
    few, many = sorted((tasks, others), key=len)
    return (both for one in few for other in _beside(one, many) if (both := _both(one, other)))


def _beside(one: range, others: Tasks) -> Iterator[range]:
    """Yield the ranges reaching between the first and the last index of a range."""
    return (others[place] for place in _places_beside(one, others))


def _places_beside(one: range, others: Tasks) -> range:
    return range(max(0, bisect_right(others, one.start, key=_start) - 1), bisect_right(others, one[-1], key=_start))


def _both(one: range, other: range) -> range:
    """Return the indices common to two ranges, again as a range."""
    divisor = gcd(one.step, other.step)
    apart = other.start - one.start
    if apart % divisor:
        return range(0)
    period = other.step // divisor  # in steps of `one`
    first = one.start + one.step * (apart // divisor * pow(one.step // divisor, -1, period) % period)
    step = one.step * period
    least = max(one.start, other.start)
    if first < least:
        first += -(-(least - first) // step) * step
    return range(first, min(one.stop, other.stop), step)


def _cut(one: range, others: Iterator[range]) -> Iterator[range]:
    """Yield the remains of a range after removing the indices of the ascending ranges `others`."""
    rest = one
    for other in others:
        gone = _both(rest, other) if rest else range(0)
        if not gone:
            continue
        first = rest.index(gone[0])
        if first:
            yield rest[:first]
        yield from _between(gone, rest.step)  # one by one: there may be millions, of which the caller takes some
        rest = rest[rest.index(gone[-1]) + 1 :]
    if rest:
        yield rest


def _between(gone: range, step: int) -> Iterator[range]:
    """Yield the indices of step `step` between the removed indices `gone`."""
    if len(gone) < 2 or gone.step == step:
        return
    if gone.step == 2 * step:
        yield range(gone.start + step, gone[-1], gone.step)
        return
    for index in gone[:-1]:
        yield range(index + step, index + gone.step, step)


def _start(one: range) -> int:
    return one.start


def _united(ranges: Tasks, spend: Callable[[int], None]) -> Tasks:
    """Return ranges with each index once. Ranges without overlap stay as written."""
    found: Tasks = []
    left = _MOST_EXPANDED
    for together in _overlapping(sorted(ranges, key=_start)):
        if len(together) == 1:
            found += together
            continue
        widest = max(together, key=len)
        if all(len(_both(widest, one)) == len(one) for one in together):
            found.append(widest)
        elif all(one.step == 1 or len(one) == 1 for one in together):
            found.append(range(together[0].start, max(one[-1] for one in together) + 1))
        else:
            left -= size(together)
            if left < 0:
                raise ValueError(f"ranges with steps overlap, with more than {_MOST_EXPANDED} indices: separate them")
            spend(size(together))
            found += compact(sorted({index for one in together for index in one}))
    return found


def _overlapping(ordered: Tasks) -> Iterator[Tasks]:
    """Yield groups of overlapping ranges, in order."""
    together: Tasks = []
    last = -1
    for one in ordered:
        if together and one.start > last:
            yield together
            together = []
        together.append(one)
        last = max(last, one[-1])
    if together:
        yield together


def compact(ordered: list[int]) -> Tasks:
    """Return ascending indices as tasks."""
    found: Tasks = []
    for index in ordered:
        if found and found[-1].stop == index:
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found


def _text(one: range) -> str:
    if len(one) == 1:
        return str(one.start)
    return f"{one.start}-{one[-1]}" + (f":{one.step}" if one.step > 1 else "")
