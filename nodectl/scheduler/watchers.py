"""Awaited events of jobs, arrays and tasks: each event is stored once, however many jobs wait for it.

Values only, in the daemon's event loop and in planning commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from nodectl.model.value_class import dataclass, field
from nodectl.scheduler import job_array
from nodectl.scheduler.dependency import AFTER, AFTER_ANY, AFTER_CORR, AFTER_NOT_OK, EXPAND, Term
from nodectl.scheduler.happened import OK, Happened, Target, base
from nodectl.selection.records import JobRecord

DONE, NEVER = 0.0, float("inf")
"""When a term is met: long ago, never; a time for later; None while that depends on another job."""
_Key = TypeVar("_Key", int, str)


@dataclass(slots=True)
class _Watched:
    """The awaited events of a job, array or task.

    `moments`: by kind of term, when that was or will be, where it is known. `who`: by kind of term, the waiting jobs.
    """

    moments: dict[str, float | None] = field(default_factory=dict)
    who: dict[str, set[int]] = field(default_factory=dict)


class Watchers:
    """All awaited events. Each method about a change returns the numbers of the jobs with news."""

    def __init__(self, happened: Happened) -> None:
        self._happened = happened
        self._watched: dict[Target, _Watched] = {}
        self._tasks: dict[int, set[int]] = {}  # by array: of `_watched`, the indices

    def is_watched(self, number: int) -> bool:
        """True where a job waits for this job, for this array or for a task of the array."""
        return (number, None) in self._watched or number in self._tasks

    def is_wanted(self, kind: str, number: int) -> bool:
        """True where a job waits for just this event of a job."""
        watched = self._watched.get((number, None))
        return watched is not None and kind in watched.who

    def time(self, term: Term, target: Target) -> float | None:
        """Return when a watched term is met."""
        moments = self._watched[target].moments
        if term.kind not in moments:
            moments[term.kind] = self._moment(term.kind, target)
        at = moments[term.kind]
        return at + term.minutes * 60 if at is not None else None

    def _moment(self, kind: str, target: Target) -> float | None:
        number, task = target
        if kind == AFTER:
            return self._happened.began(number, task)
        if kind == AFTER_CORR and task is not None:
            return self.corresponds(number, task)
        if self._happened.is_live(number, task):
            return None
        if kind == AFTER_ANY:
            return DONE
        outcome = self._happened.outcome(number, task)
        if outcome is None:
            return NEVER
        return DONE if (outcome == OK) != (kind == AFTER_NOT_OK) else NEVER

    def corresponds(self, array: int, index: int) -> float | None:
        """Return when the array's task has ended so as to let the counterpart start: DONE, NEVER or None."""
        if self._happened.is_live(array, index):
            return None
        outcome = self._happened.outcome(array, index)
        if outcome is None:  # no array: as afterok
            if self._happened.is_live(array):
                return None
            outcome = self._happened.outcome(array)
        return DONE if outcome == OK else NEVER

    def watch(self, job: JobRecord, kind: str, target: Target) -> None:
        """Let the job wait for this event."""
        watched = self._watched.setdefault(target, _Watched())
        watched.who.setdefault(kind, set()).add(job.job_id)
        if target[1] is not None:
            self._tasks.setdefault(target[0], set()).add(target[1])

    def leave(self, job: JobRecord, kind: str, target: Target) -> None:
        """Stop the job's wait for this event."""
        watched = self._watched.get(target)
        if watched is None:
            return
        _discard(watched.who, kind, job.job_id)
        if kind not in watched.who:
            watched.moments.pop(kind, None)
        if not watched.who:
            del self._watched[target]
            if target[1] is not None:
                _discard(self._tasks, target[0], target[1])

    def changed(self, job: JobRecord) -> set[int]:
        """Note the start or end of a job; return the jobs for which something is different."""
        told: set[int] = set()
        if not self._watched:
            return told
        for target in {(job.job_id, None), (base(job), None), (base(job), job.array_task_id)}:
            watched = self._watched.get(target)
            for kind in list(watched.who) if watched is not None else ():
                told |= self._noted(kind, target)
        return told

    def _noted(self, kind: str, target: Target) -> set[int]:
        watched = self._watched[target]
        if kind == EXPAND:
            return watched.who[kind]
        if kind not in watched.moments:
            return set()  # they are to be looked at anyway
        moment = self._moment(kind, target)
        if moment == watched.moments[kind]:
            return set()
        watched.moments[kind] = moment
        return watched.who[kind]

    def all_ended(self, array: int) -> set[int]:
        """Note the end of a whole array; return the jobs waiting for tasks of the array, even for missing tasks."""
        return self._anew(array, self._tasks.get(array, ()))

    def cancelled(self, array: int, gone: job_array.Tasks) -> set[int]:
        """Note the cancellation of waiting tasks of an array; return the jobs waiting for such tasks."""
        watched = self._tasks.get(array, set())
        if job_array.size(gone) < len(watched):
            return self._anew(array, watched.intersection(job_array.indices(gone)))
        return self._anew(array, [index for index in watched if job_array.has(gone, index)])

    def _anew(self, array: int, tasks: Iterable[int]) -> set[int]:
        """Return all jobs waiting for the tasks, and forget the moments; a later look finds out about each task."""
        told: set[int] = set()
        for index in tasks:
            watched = self._watched[array, index]
            watched.moments.clear()
            for who in watched.who.values():
                told |= who
        return told


def _discard(index: dict[_Key, set[int]], key: _Key, number: int) -> None:
    """Take a number out of the index, and remove a key without numbers."""
    numbers = index.get(key)
    if numbers is not None:
        numbers.discard(number)
        if not numbers:
            del index[key]
