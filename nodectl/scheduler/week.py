"""Limits of the CPU-hours and GPU-hours of a week, by user or by a group of users. A week begins on Monday, local time.

A job starts only if all that it may use until its time limit is left of the week, so that no job has to be ended for a
limit. Values only, in the daemon and in planning commands. Root has no limits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodectl.model.value_class import dataclass
from nodectl.model.words import moment
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.limits import Block, Demand
from nodectl.scheduler.policy import WeekHours
from nodectl.selection.records import JobRecord

WEEK = 7 * 86_400
_REASONS = ("AssocGrpCPUMinutesLimit", "AssocGrpGRESMinutes")
"""Slurm's words for what a job waits for."""
_UNITS = ("CPU-hours", "GPU-hours")
_HOUR = 3600


def begin_of(now: float) -> float:
    """Return when the week began."""
    day = time.localtime(now)
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday - day.tm_wday, 0, 0, 0, 0, 0, -1))


def end_of(now: float) -> float:
    """Return when the next week begins."""
    day = time.localtime(now)
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday - day.tm_wday + 7, 0, 0, 0, 0, 0, -1))


@dataclass(slots=True)
class _Account:
    """The CPU and GPU seconds used in the week of the time `at`, and the CPUs and GPUs in use since."""

    used: tuple[float, float]
    at: float
    rate: tuple[int, int] = (0, 0)


class _Sums(NamedTuple):
    """The CPU and GPU seconds that some users together used in the week, and that their running jobs may still use."""

    used: tuple[float, float]
    promised: tuple[float, float]


class Week:
    """The hours of all users in this week. `rows`: user, CPU seconds, GPU seconds, and when they were right."""

    def __init__(self, lines: Sequence[WeekHours], rows: Iterable[tuple[str, float, float, float]] = ()) -> None:
        self._lines = lines
        self._accounts = {user: _Account((cpu, gpu), at) for user, cpu, gpu, at in rows} if lines else {}
        self._running: dict[int, tuple[JobRecord, tuple[int, int]]] = {}
        self._summed: tuple[float, int] = (0.0, -1)  # for which time and queue the next ones are
        self._sums: dict[tuple[str, ...], _Sums] = {}
        self._ends = 0.0

    def __bool__(self) -> bool:
        """True where there are limits."""
        return bool(self._lines)

    def since(self, user: str, started: float, now: float) -> float:
        """Return the time from which a job begun at `started` is not accounted for yet, after a restart."""
        account = self._accounts.get(user)
        return started if account is None else min(max(started, account.at), now)

    def clock_set(self, by: float) -> None:
        """Charge nothing for `by` seconds by which the clock was set. The hours used so far stay in this week."""
        for account in self._accounts.values():
            account.at += by

    def begin(self, job: JobRecord, demand: Demand, now: float) -> None:
        """Count a job's CPUs and GPUs from now on."""
        if self._lines and job.user_id:
            rate = demand.cpus, demand.gpus
            self._running[job.job_id] = job, rate
            self._change(job.user_name, rate, 1, now)

    def end(self, job: JobRecord, now: float) -> None:
        """Stop counting a job."""
        _, rate = self._running.pop(job.job_id, (job, None))
        if rate is not None:
            self._change(job.user_name, rate, -1, now)

    def _change(self, user: str, rate: tuple[int, int], sign: int, now: float) -> None:
        account = self._accounts.setdefault(user, _Account((0.0, 0.0), now))
        account.used, account.at = self._used(account, now), now
        account.rate = account.rate[0] + sign * rate[0], account.rate[1] + sign * rate[1]

    def _used(self, account: _Account, now: float) -> tuple[float, float]:
        begin = begin_of(now)
        before = account.used if account.at >= begin else (0.0, 0.0)
        seconds = max(0.0, now - max(account.at, begin))  # a clock that was set back takes nothing away
        return before[0] + account.rate[0] * seconds, before[1] + account.rate[1] * seconds

    def rows(self, now: float) -> list[tuple[str, float, float, float]]:
        """Return all accounts as of now, to be stored. Those of earlier weeks are dropped, here and in memory."""
        begin = begin_of(now)
        self._accounts = {user: one for user, one in self._accounts.items() if one.at >= begin or any(one.rate)}
        return [(user, *self._used(account, now), now) for user, account in self._accounts.items()]

    def hours(self, now: float) -> list[dict[str, object]]:
        """Return what was used this week by each user, or by the users of a line together, and the limits, in hours."""
        used: dict[tuple[str, ...], tuple[float, float]] = {
            line.users: (0.0, 0.0) for line in self._lines if line.users
        }
        limits = {line.users: line.hours for line in self._lines}
        for user, account in self._accounts.items():
            line = self._line(user)
            if line is None:
                continue
            users = line.users or (user,)
            limits[users], before, more = line.hours, used.get(users, (0.0, 0.0)), self._used(account, now)
            used[users] = before[0] + more[0], before[1] + more[1]
        return [
            {
                "users": list(users),
                "cpu_hours": cpu / _HOUR,
                "cpu_limit": limits[users][0] or None,
                "gpu_hours": gpu / _HOUR,
                "gpu_limit": limits[users][1] or None,
            }
            for users, (cpu, gpu) in sorted(used.items())
        ]

    def _line(self, user: str) -> WeekHours | None:
        """Return the first line that names the user, or the first one that names none."""
        lines = [line for line in self._lines if user in line.users or not line.users]
        return next((line for line in lines if line.users), lines[0] if lines else None)

    def admit(self, job: JobRecord, demand: Demand, verb: str) -> None:
        """Check a new job. Raises NotAdmitted for more hours than its user may ever have in a week."""
        line = self._line(job.user_name) if self._lines and job.user_id else None
        if line is None:
            return
        for kind, most in enumerate(line.hours):
            wanted = _wanted(job, demand)[kind]
            if most and wanted > most * _HOUR:
                without = "" if job.time_limit else " without a --time"
                raise NotAdmitted(
                    f"the job{without} {verb} up to {_hours(wanted)} {_UNITS[kind]}, {most} is the most in a week: "
                    f"name a shorter --time ({_REASONS[kind]})"
                )

    def block(self, job: JobRecord, demand: Demand, now: float, version: int) -> Block | None:
        """Return the reason for which a job with this demand cannot start now, or None.

        `version` is the queue's: what was added up for it at this time is kept, because a round asks for each waiting
        job.
        """
        line = self._line(job.user_name) if self._lines and job.user_id else None
        if line is None:
            return None
        users = line.users or (job.user_name,)
        used, promised = self._sums_of(users, now, version)
        for kind, (most, wanted) in enumerate(zip(line.hours, _wanted(job, demand), strict=True)):
            if most and wanted and used[kind] + promised[kind] + wanted > most * _HOUR:
                return Block(
                    _REASONS[kind],
                    f"{', '.join(users)} used {_hours(used[kind])} of {most} {_UNITS[kind]} of this week, and running "
                    f"jobs may use {_hours(promised[kind])} more; this job may use {_hours(wanted)}",
                    f"a new week begins on {moment(self._ends, '')}; before, a shorter --time may fit",
                    until=self._ends,
                )
        return None

    def _sums_of(self, users: tuple[str, ...], now: float, version: int) -> _Sums:
        if self._summed != (now, version):
            self._summed, self._sums, self._ends = (now, version), {}, end_of(now)
        found = self._sums.get(users)
        if found is None:
            used = [self._used(self._accounts[user], now) for user in users if user in self._accounts]
            promised = [
                (rate[0] * seconds, rate[1] * seconds)
                for one, rate in self._running.values()
                if one.user_name in users
                for seconds in (min(max(0.0, one.end_time - now), WEEK),)
            ]
            found = self._sums[users] = _Sums(_sum(used), _sum(promised))
        return found


def _sum(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _wanted(job: JobRecord, demand: Demand) -> tuple[float, float]:
    seconds = job.time_limit or WEEK
    return demand.cpus * seconds, demand.gpus * seconds


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:.1f}".removesuffix(".0")
