"""Past starts and ends of jobs and arrays, for the jobs waiting for such events.

Values only, in the daemon's event loop and in planning commands. A question costs the same for an array of a million
tasks as for one job: a look into tables, or one question to the history, whose answer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nodectl.model.states import CANCELLED, COMPLETED, PENDING
from nodectl.scheduler.arrays import Arrays
from nodectl.selection.records import JobRecord

Outcome = str
"""The state in which a job has ended."""
Target = tuple[int, int | None]
"""A job or an array by its number; with an index, one task of the array."""
OK = COMPLETED
_KEPT = 10_000


def base(job: JobRecord) -> int:
    """Return the number by which dependencies name the job: the array's for a task, else the job's own."""
    return job.array_job_id or job.job_id


class Happened:
    """The known starts and outcomes. `ask` queries the history for jobs ended before `ended` was called."""

    def __init__(
        self, jobs: Mapping[int, JobRecord], arrays: Arrays, ask: Callable[[int, int | None], Outcome | None]
    ) -> None:
        self._jobs = jobs
        self._arrays = arrays
        self._ask = ask
        self._unbegun: dict[int, set[int]] = {}  # by job or array: its waiting jobs that never ran
        self._latest: dict[int, float] = {}  # by array that has not ended: when the latest of its tasks began
        self._ended: dict[Target, Outcome] = {}
        self._began: dict[Target, float] = {}  # when those in `_ended` did
        self._worst: dict[int, Outcome] = {}  # of arrays of which some tasks have ended

    def known(self, job: JobRecord) -> None:
        """Register a job, or the record of an array."""
        if job.job_state != PENDING:
            self._note_start(job)
        elif not job.restart_cnt:
            self._unbegun.setdefault(base(job), set()).add(job.job_id)

    def started(self, job: JobRecord) -> None:
        """Note the start of the job."""
        self._no_longer_unbegun(job)
        self._note_start(job)

    def ended(self, job: JobRecord, outcome: Outcome) -> bool:
        """Note the end of the job; return True where nothing is left of the job or of the job's array."""
        self._no_longer_unbegun(job)
        self._keep((job.job_id, None), outcome, job.start_time)
        array = job.array_job_id
        if not array:
            return True
        if job.array_task_id is not None:
            self._keep((array, job.array_task_id), outcome, job.start_time)
        if self._worst.setdefault(array, outcome) == OK:
            self._worst[array] = outcome
        if self._arrays.is_live(array):
            return False
        worst = self._worst.pop(array)
        # Tasks that ended under an earlier daemon are known to its records alone.
        asked = self._ask(array, None) if worst == OK else None
        self._keep((array, None), asked or worst, self._latest.pop(array, job.start_time))
        return True

    def tasks_cancelled(self, array: int) -> None:
        """Note the cancellation of waiting tasks of the array, tasks without jobs."""
        self._worst[array] = CANCELLED

    def is_live(self, number: int, task: int | None = None) -> bool:
        """True where the job, any task of the array, or with `task` this task has not ended."""
        if task is not None:
            return self._arrays.live_task(number, task) is not None
        return number in self._jobs or self._arrays.is_live(number)

    def live(self, number: int, task: int | None = None) -> Iterator[JobRecord]:
        """Yield the jobs counted by `is_live`."""
        if task is not None:
            one = self._arrays.live_task(number, task)
            yield from () if one is None else (one,)
            return
        own = self._jobs.get(number)
        if own is not None:
            yield own
        yield from (one for one in self._arrays.live_tasks(number) if one is not own)

    def outcome(self, number: int, task: int | None = None) -> Outcome | None:
        """Return the final state of a job, array or task; None where unknown or not ended."""
        found = self._ended.get((number, task))
        if found is None:
            found = self._ask(number, task)
            if found is not None:
                self._keep((number, task), found, 0.0)
        return found

    def is_known(self, number: int, task: int | None = None) -> bool:
        """True where the job exists or has existed."""
        return self.is_live(number, task) or self.outcome(number, task) is not None

    def began(self, number: int, task: int | None = None) -> float | None:
        """Return the start of a job, for an array the start of the last task; None where the start is still to come.

        0 for a job that never ran, or ran long ago.
        """
        if not self.is_live(number, task):
            return self._began.get((number, task), 0.0)
        one = self._jobs.get(number) if task is None else self._arrays.live_task(number, task)
        if one is not None and one.job_id in self._unbegun.get(base(one), ()):
            return None
        if task is None and self._arrays.is_live(number):
            return None if number in self._unbegun else self._latest.get(number, 0.0)
        return 0.0 if one is None else one.start_time

    def _note_start(self, job: JobRecord) -> None:
        if job.array_job_id:
            self._latest[job.array_job_id] = max(job.start_time, self._latest.get(job.array_job_id, 0.0))

    def _no_longer_unbegun(self, job: JobRecord) -> None:
        waiting = self._unbegun.get(base(job))
        if waiting is not None:
            waiting.discard(job.job_id)
            if not waiting:
                del self._unbegun[base(job)]

    def _keep(self, target: Target, outcome: Outcome, began: float) -> None:
        self._ended.pop(target, None)
        self._ended[target], self._began[target] = outcome, began
        if len(self._ended) > _KEPT:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._began[oldest]
