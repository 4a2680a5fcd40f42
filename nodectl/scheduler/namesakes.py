"""Jobs of the same user and name, for singleton jobs, which run in sequence. Values only."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from nodectl.scheduler.happened import base
from nodectl.selection.records import JobRecord

_Name = tuple[int, str]
_Place = tuple[int, int]
"""A job's place among its namesakes: the number by which others name it, then its own."""


class Namesakes:
    """The jobs by user and name. Finds the jobs before a job, and the next job, without going through all namesakes."""

    def __init__(self, jobs: Mapping[int, JobRecord]) -> None:
        self._jobs = jobs
        self._all: dict[_Name, list[_Place]] = {}
        self._alone: dict[_Name, list[_Place]] = {}  # jobs that wait until they are the only one
        self._started: dict[_Name, set[int]] = {}  # some may wait again: they are struck off when that is noticed

    def add(self, job: JobRecord) -> None:
        """Register a job."""
        _add(self._all, job)
        if job.is_active:
            self.started(job)

    def gone(self, job: JobRecord) -> None:
        """Remove a job."""
        _remove(self._all, job)
        self.waits_no_more(job)
        self._strike_off(_name(job), job.job_id)

    def renamed(self, job: JobRecord, name: str) -> None:
        """Register the job under a new name, which the caller gives to `job` afterwards."""
        waits = _has(self._alone, job)
        runs = job.job_id in self._started.get(_name(job), ())
        self.gone(job)
        after = (job.user_id, name)
        for index in (self._all, self._alone) if waits else (self._all,):
            insort(index.setdefault(after, []), _place(job))
        if runs:
            self._started.setdefault(after, set()).add(job.job_id)

    def started(self, job: JobRecord) -> None:
        """Note the start of the job."""
        self._started.setdefault(_name(job), set()).add(job.job_id)

    def waits(self, job: JobRecord) -> None:
        """Note the job as waiting to be the only job with this name."""
        _add(self._alone, job)

    def waits_no_more(self, job: JobRecord) -> None:
        """Remove the job from the jobs waiting to be alone."""
        _remove(self._alone, job)

    def next_alone(self, job: JobRecord) -> JobRecord | None:
        """Return the first of the jobs waiting to be alone under this job's name, or None.

        All further jobs waiting under this name wait at least for it.
        """
        for _, number in self._alone.get(_name(job), ()) if self._alone else ():
            if number in self._jobs:
                return self._jobs[number]
        return None

    def goes_first(self, job: JobRecord) -> bool:
        """True where no namesake goes before the job."""
        return next(self.before(job), None) is None

    def before(self, job: JobRecord) -> Iterator[JobRecord]:
        """Yield the namesakes before the job: the running jobs, and the jobs submitted earlier."""
        name = _name(job)
        for number in list(self._started.get(name, ())):
            other = self._jobs.get(number)
            if other is None or not other.is_active:
                self._strike_off(name, number)
            elif other is not job:
                yield other
        for earliest, number in self._all.get(name, ()):
            if earliest >= base(job):
                return
            other = self._jobs.get(number)
            if other is not None and not other.is_active:
                yield other

    def _strike_off(self, name: _Name, number: int) -> None:
        running = self._started.get(name)
        if running is not None:
            running.discard(number)
            if not running:
                del self._started[name]


def _name(job: JobRecord) -> _Name:
    return job.user_id, job.name


def _place(job: JobRecord) -> _Place:
    return base(job), job.job_id


def _has(index: Mapping[_Name, list[_Place]], job: JobRecord) -> bool:
    places, place = index.get(_name(job), []), _place(job)
    at = bisect_left(places, place)
    return at < len(places) and places[at] == place


def _add(index: dict[_Name, list[_Place]], job: JobRecord) -> None:
    places, place = index.setdefault(_name(job), []), _place(job)
    at = bisect_left(places, place)
    if places[at : at + 1] != [place]:
        places.insert(at, place)


def _remove(index: dict[_Name, list[_Place]], job: JobRecord) -> None:
    if index and _has(index, job):
        name, place = _name(job), _place(job)
        places = index[name]
        del places[bisect_left(places, place)]
        if not places:
            del index[name]
