"""The rule for idle jobs, over samples of usage. Functions of values, in the daemon.

A job is busy if it has used CPU time, has moved bytes to or from disks, or uses its devices. Less than one percent of
one CPU does not count: a program that waits for its user still looks at the clock now and then. A job also counts as
busy if its CPU time or the load of a device is unknown, or if a counter went down. Bytes are known where the kernel's
io controller counts them.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

PERIOD = 60.0
"""The longest time between two samples, in seconds. A longer gap, as while no daemon ran, counts as this time."""
_LEAST_CPU = 0.01  # of one CPU
_NOISE = 0.03  # CPU seconds between two samples: step runners use some to answer calls
_LEAST_BYTES = 1 << 20  # in a period


class Sample(NamedTuple):
    """A job's usage so far: CPU seconds and bytes, None where unknown. `at` is monotonic, in seconds.

    `devices`: True while the job's devices work, None where that is unknown, False for a job without devices.
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
    """The configuration: idle seconds until the user is told, and the `grace` after that. `ends`: end the job then."""

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
