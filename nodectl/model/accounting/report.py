"""Sums of each user's use by day, week or month: CPU time, waiting, efficiency, memory. Pure.

A job that spans several periods counts in each by the time that it ran there; its wait, and the job itself, count where
it started. A job that has not ended counts up to now.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nodectl.model.accounting.rows import Row

PERIODS = ("day", "week", "month", "total")
_HOUR = 3600.0
_MIB_OF_GIB = 1024


@dataclass(slots=True)
class Sum:
    """The use of a user in a period, or of several users together. Seconds, and MiB times seconds.

    `measured` and `used` are those of jobs that have ended: the full use of a running job is not known.
    """

    jobs: int = 0
    allocated: float = 0.0
    measured: float = 0.0
    used: float = 0.0
    memory_asked: float = 0.0
    memory_used: float = 0.0
    waits: list[float] = field(default_factory=list)

    def add(self, other: Sum) -> None:
        """Add a second sum."""
        self.jobs += other.jobs
        self.allocated += other.allocated
        self.measured += other.measured
        self.used += other.used
        self.memory_asked += other.memory_asked
        self.memory_used += other.memory_used
        self.waits += other.waits

    @property
    def cpu_hours(self) -> float:
        """Hours of allocated CPUs."""
        return self.allocated / _HOUR

    @property
    def efficiency(self) -> float | None:
        """The used part of the allocated CPU time, of ended jobs; None without ended jobs."""
        return self.used / self.measured if self.measured else None

    @property
    def median_wait(self) -> float | None:
        """The median wait of the started jobs, in seconds."""
        return percentile(self.waits, 50)

    @property
    def long_wait(self) -> float | None:
        """The wait not exceeded by 19 of 20 started jobs, in seconds."""
        return percentile(self.waits, 95)

    @property
    def gib_hours_asked(self) -> float:
        """GiB times hours of requested memory while the jobs ran."""
        return self.memory_asked / _MIB_OF_GIB / _HOUR

    @property
    def gib_hours_used(self) -> float:
        """GiB times hours of the jobs' peaks of memory, as if each peak had lasted for the whole run."""
        return self.memory_used / _MIB_OF_GIB / _HOUR


@dataclass(frozen=True, slots=True)
class Period:
    """A period of a report.

    `begin` and `end` in seconds since the epoch; `users` by name, those with the most CPU time first.
    """

    name: str
    begin: float
    end: float
    users: dict[str, Sum]

    @property
    def total(self) -> Sum:
        """The sum of all users."""
        whole = Sum()
        for one in self.users.values():
            whole.add(one)
        return whole


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the smallest value not exceeded by at least `percent` percent of the values; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def report(jobs: Iterable[tuple[Row, Sequence[Row]]], by: str, since: float, now: float) -> list[Period]:
    """Return the periods from `since` to `now`, including periods without jobs."""
    bounds = [(name, max(begin, since), min(end, now)) for name, begin, end in _periods(by, since, now)]
    sums: list[dict[str, Sum]] = [{} for _ in bounds]
    for job, _ in jobs:
        for place, (_, begin, end) in enumerate(bounds):
            part = _part(job, begin, end, now, last=place == len(bounds) - 1)
            if part is not None:
                sums[place].setdefault(job.user, Sum()).add(part)
    return [
        Period(name, begin, end, dict(sorted(users.items(), key=lambda one: (-one[1].allocated, one[0]))))
        for (name, begin, end), users in zip(bounds, sums, strict=True)
    ]


def _part(job: Row, begin: float, end: float, now: float, *, last: bool) -> Sum | None:
    """Return the part of a job inside a period; None for nothing."""
    if not job.started:
        return None
    over = job.ended or now
    began = begin <= job.started < end or (last and job.started == end)
    inside = max(0.0, min(over, end) - max(job.started, begin))
    if not began and not inside:
        return None
    share = inside / (over - job.started) if over > job.started else float(began)
    seconds = job.elapsed(now) * share  # a suspended job gives its CPUs back
    peak = job.used.peak_memory or (job.used.max_rss[0] if job.used.max_rss else 0)
    return Sum(
        jobs=int(began),
        allocated=job.cpus * seconds,
        measured=job.cpus * seconds if job.ended else 0.0,
        used=job.used.cpu * share if job.ended else 0.0,
        memory_asked=job.memory * seconds,
        memory_used=peak / (1 << 20) * seconds,
        waits=[job.waited(now)] if began else [],
    )


def _periods(by: str, since: float, now: float) -> Iterator[tuple[str, float, float]]:
    if by == "total":
        yield "total", since, now
        return
    day = datetime.datetime.fromtimestamp(since).replace(hour=0, minute=0, second=0, microsecond=0)
    if by == "week":
        day -= datetime.timedelta(days=day.weekday())
    elif by == "month":
        day = day.replace(day=1)
    while day.timestamp() <= now:
        if by == "month":
            following = (day + datetime.timedelta(days=32)).replace(day=1)
        else:
            following = day + datetime.timedelta(days=7 if by == "week" else 1)
        yield day.strftime("%Y-%m" if by == "month" else "%Y-%m-%d"), day.timestamp(), following.timestamp()
        day = following


def over_all(periods: Iterable[Period]) -> dict[str, Sum]:
    """Return each user's sums over all periods, users with the most CPU time first."""
    users: dict[str, Sum] = {}
    for period in periods:
        for name, one in period.users.items():
            users.setdefault(name, Sum()).add(one)
    return dict(sorted(users.items(), key=lambda one: (-one[1].allocated, one[0])))
