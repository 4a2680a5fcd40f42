"""The rule for idle jobs, over samples of usage. Functions of values, in the daemon.

A job is busy that has used CPU time or moved bytes to or from disks, or whose devices work. Less than one percent of
one CPU is nothing: what waits for its user still looks at the clock now and then. Where its CPU time or the load of one
of its devices is not known, or a counter went down, the job counts as busy. Bytes are known where the kernel's io
controller counts them.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

PERIOD = 60.0
"""Seconds between two samples, at most. A longer gap, as while no daemon ran, excuses no more idleness than this."""
_LEAST_CPU = 0.01  # of one CPU
_NOISE = 0.03  # CPU seconds between two samples, which step runners use where someone asks them
_LEAST_BYTES = 1 << 20  # in a period


class Sample(NamedTuple):
    """What a job has used so far: CPU seconds and bytes, None where unknown; `devices`: whether they work, None where
    unknown, False without any. `at` is monotonic, in seconds.
    """

    at: float
    cpu: float | None
    moved: int | None = 0
    devices: bool | None = False


class Spell(NamedTuple):
    """The last sample of a job, the start of idleness, and True for a user who was told."""

    last: Sample
    since: float
    told: bool = False


class Rule(NamedTuple):
    """The configuration: seconds after which a job is told, and seconds after that; whether it is ended then."""

    after: float
    grace: float
    ends: bool


class Verdict(enum.Enum):
    """The action for an idle job."""

    NOTHING = 0
    TELL = 1
    END = 2


def is_idle(before: Sample, now: Sample, period: float = PERIOD) -> bool:
    """Return True if a job did nothing between two samples."""
    if now.devices is not False or before.cpu is None or now.cpu is None:
        return False
    if now.cpu < before.cpu - _NOISE or (now.moved or 0) < (before.moved or 0):
        return False  # the counters are those of a new cgroup, and tell nothing of what went before
    seconds = min(max(now.at - before.at, 0.0), period)
    if now.cpu - before.cpu >= max(_LEAST_CPU * seconds, _NOISE):
        return False
    return (now.moved or 0) - (before.moved or 0) < _LEAST_BYTES * seconds / PERIOD


def judged(spell: Spell | None, now: Sample, rule: Rule, period: float = PERIOD) -> tuple[Spell, Verdict]:
    """Return a job's spell after a sample, and the action."""
    if spell is None or not is_idle(spell.last, now, period):
        return Spell(now, now.at), Verdict.NOTHING
    spell = spell._replace(last=now)
    idle = now.at - spell.since
    if idle < rule.after:
        return spell, Verdict.NOTHING
    if not spell.told:
        return spell._replace(told=True), Verdict.TELL
    return spell, Verdict.END if rule.ends and idle >= rule.after + rule.grace else Verdict.NOTHING
