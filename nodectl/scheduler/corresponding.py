"""The search for startable tasks of a waiting array, by the tasks with the same indices in other arrays (aftercorr).

Values only, in the daemon's event loop and in planning commands. An array's tasks are gone through once, a few hundred
at a time. Afterwards only tasks whose counterpart has ended are looked at again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from nodectl.model.value_class import dataclass, field
from nodectl.scheduler import job_array
from nodectl.scheduler.arrays import Arrays
from nodectl.selection.records import JobRecord

_AT_A_TIME = 256  # terms, each of which may be a question to the history


@dataclass(slots=True)
class _Search:
    """The state of an array's search.

    `position`: the first index that was not looked at yet. `ready`: a heap of the indices found. `again`: indices
    before `position` whose counterpart has ended since.
    """

    targets: tuple[int, ...]
    position: int = 0
    is_over: bool = False
    ready: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)


class Corresponding:
    """The searches of all waiting arrays.

    `may_start(array, index)`: True where this task has ended so that its counterpart may start.
    """

    def __init__(self, arrays: Arrays, may_start: Callable[[int, int], bool]) -> None:
        self._arrays = arrays
        self._may_start = may_start
        self._searches: dict[int, _Search] = {}
        self._by_target: dict[int, set[int]] = {}

    def follow(self, job: JobRecord, targets: Sequence[int]) -> None:
        """Let the tasks of this record wait for the tasks of `targets` from now on."""
        self._searches[job.job_id] = _Search(tuple(targets))
        for target in targets:
            self._by_target.setdefault(target, set()).add(job.job_id)

    def forget(self, job: JobRecord) -> None:
        """Stop the search for this record."""
        search = self._searches.pop(job.job_id, None)
        for target in search.targets if search is not None else ():
            followers = self._by_target[target]
            followers.discard(job.job_id)
            if not followers:
                del self._by_target[target]

    def ended(self, array: int, index: int) -> set[int]:
        """Note the end of a task; return the records for which something may be different now."""
        followers = self._by_target.get(array, set())
        for number in followers:
            search = self._searches[number]
            if index < search.position:
                search.again.append(index)
        return set(followers)

    def all_ended(self, target: int) -> set[int]:
        """Note the end of a whole array, or of a plain job; return the records with tasks to be looked at again.

        The end also decides about indices without a task in `target`.
        """
        followers = self._by_target.get(target, set())
        for number in followers:
            search = self._searches[number]
            search.position, search.is_over = 0, False
            search.ready.clear()
            search.again.clear()
        return set(followers)

    def is_unfinished(self, job: JobRecord) -> bool:
        """True where `next` has found no task and has not looked at all tasks."""
        search = self._searches.get(job.job_id)
        return search is not None and not search.ready and bool(search.again or not search.is_over)

    def next(self, job: JobRecord) -> int | None:
        """Return the first known startable task; None where none was found yet, or at all."""
        tasks = self._arrays.tasks(job)
        search = self._searches.get(job.job_id)
        if search is None:
            return next(job_array.indices(tasks), None)
        self._tidy(search, tasks)
        if not search.ready:
            self._look(search, tasks)
        return search.ready[0] if search.ready else None

    def _tidy(self, search: _Search, tasks: job_array.Tasks) -> None:
        while search.ready and not job_array.has(tasks, search.ready[0]):
            heapq.heappop(search.ready)

    def _look(self, search: _Search, tasks: job_array.Tasks) -> None:
        left = _AT_A_TIME
        while search.again and left > 0:
            left -= len(search.targets)
            self._look_at(search, tasks, search.again.pop())
        for index in job_array.indices_from(tasks, search.position) if left > 0 and not search.is_over else ():
            if left <= 0 or search.ready:
                return
            left -= len(search.targets)
            search.position = index + 1
            self._look_at(search, tasks, index)
        search.is_over = search.is_over or left > 0

    def _look_at(self, search: _Search, tasks: job_array.Tasks, index: int) -> None:
        if job_array.has(tasks, index) and all(self._may_start(target, index) for target in search.targets):
            heapq.heappush(search.ready, index)
