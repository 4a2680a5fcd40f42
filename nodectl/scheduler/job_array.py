"""The tasks of a job array that still wait, as one text: "0-9:2,15". A million of them are a few bytes.

Values only, in the daemon, and in commands.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice, pairwise

_RANGE = r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?\Z"  # compiled when it is wanted
_MOST_RANGES = 10_000
_MOST_LOOKED_AT = 100_000

Tasks = list[range]
"""Ascending ranges that have no index in common, none empty."""


def parse(text: str) -> tuple[Tasks, int]:
    """sbatch's --array: "0-9:2%3" is its indices, and how many may run at a time, 0 for any. Raises ValueError."""
    indices, percent, limit = text.strip().partition("%")
    if percent and not (limit.isascii() and limit.isdecimal() and int(limit[:10]) > 0):
        raise ValueError(f"{text!r}: {limit!r} is no number of tasks")
    return tasks_of(indices), int(limit[:10]) if percent else 0


def tasks_of(text: str) -> Tasks:
    """Indices as "0-9:2,15" or "[0-3]". Raises ValueError."""
    ranges = []
    parts = text.strip().removeprefix("[").removesuffix("]").split(",")
    if len(parts) > _MOST_RANGES:
        raise ValueError(f"{len(parts)} ranges, {_MOST_RANGES} are the most")
    for part in parts:
        match = re.match(_RANGE, part.strip(), re.ASCII)
        if match is None:
            raise ValueError(f"{part[:100]!r} is no range of indices")
        first, last, step = match.groups()
        one = range(int(first), int(last or first) + 1, int(step or 1) or 1)
        if not one or step == "0":
            raise ValueError(f"{part[:100]!r} is no range of indices")
        ranges.append(one)
    return _merged(ranges)


def text_of(tasks: Tasks) -> str:
    """What `tasks_of` reads."""
    return ",".join(map(_text, tasks))


def size(tasks: Tasks) -> int:
    """How many."""
    return sum(map(len, tasks))


def span(tasks: Tasks) -> tuple[int, int, int, int]:
    """How many, the least and the greatest index, and the step between them; 1 where they are not evenly spaced."""
    step = tasks[0].step if len(tasks) == 1 and len(tasks[0]) > 1 else 1
    return size(tasks), tasks[0][0], max(one[-1] for one in tasks), step


def indices(tasks: Tasks) -> Iterator[int]:
    """Each, in order."""
    for one in _ordered(tasks):
        yield from one


def has(tasks: Tasks, index: int) -> bool:
    """True where it is one of them."""
    place = bisect_right(tasks, index, key=_start)
    return place > 0 and index in tasks[place - 1]


def without(tasks: Tasks, index: int) -> Tasks:
    """All but this one."""
    left = []
    for one in tasks:
        if index not in one:
            left.append(one)
            continue
        at = one.index(index)
        left += [part for part in (one[:at], one[at + 1 :]) if part]
    return left


def without_all(tasks: Tasks, others: Tasks) -> Tasks:
    """All but the others. Raises ValueError for what would leave more pieces than are kept."""
    left = _without_all(tasks, others)
    if len(left) > _MOST_RANGES:
        raise ValueError(f"{len(left)} ranges would be left, {_MOST_RANGES} are the most")
    return left


def _without_all(tasks: Tasks, others: Tasks) -> Tasks:
    if all(one.step == 1 for one in others):
        stops = [one.stop for one in others]
        return [part for one in tasks for part in _cut(one, others, bisect_right(stops, one.start))]
    if size(others) > _MOST_LOOKED_AT or size(tasks) > _MOST_LOOKED_AT:
        raise ValueError("large ranges with steps")
    gone = {index for one in others for index in one if has(tasks, index)}
    return _compact(sorted(index for one in tasks for index in one if index not in gone))


def _cut(one: range, others: Tasks, first: int) -> Iterator[range]:
    """What is left of a range without ranges of step 1, which ascend; `first` of them is the first that reaches it."""
    rest = one
    for other in islice(others, first, None):
        if not rest or other.start >= rest.stop:
            break
        before = range(rest.start, max(other.start, rest.start), rest.step)
        if before:
            yield before
        rest = rest[-(-(max(other.stop, rest.start) - rest.start) // rest.step) :]
    if rest:
        yield rest


def _start(one: range) -> int:
    return one.start


def _merged(ranges: Tasks) -> Tasks:
    """Each index once, where ranges overlap; a few ranges that do not stay as they were written."""
    ordered = sorted(ranges, key=_start)
    if all(one[-1] < after.start for one, after in pairwise(ordered)):
        return ordered
    if sum(map(len, ranges)) > _MOST_LOOKED_AT:
        raise ValueError("large ranges that overlap")
    return _compact(sorted({index for one in ranges for index in one}))


def _compact(ordered: list[int]) -> Tasks:
    found: Tasks = []
    for index in ordered:
        if found and found[-1].stop == index:
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found


def _ordered(tasks: Tasks) -> Tasks:
    return sorted(tasks, key=_start)


def _text(one: range) -> str:
    if len(one) == 1:
        return str(one.start)
    return f"{one.start}-{one[-1]}" + (f":{one.step}" if one.step > 1 else "")
