"""Job arrays in the queue: one record for all waiting tasks, and a job for each started task.

Values only, in the daemon's event loop and in planning commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy

from nodectl.model.states import PENDING
from nodectl.model.value_class import replace
from nodectl.scheduler import job_array
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.selection.records import JobRecord


def is_waiting_array(job: JobRecord) -> bool:
    """True for the record of an array's waiting tasks."""
    return bool(job.array_tasks)


class Arrays:
    """All job arrays of the queue.

    `new_id` returns the number of a job split off an array; it raises NotAdmitted where no number is left.
    """

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._parsed: dict[int, tuple[str, job_array.Tasks]] = {}
        self._live: dict[int, dict[int, JobRecord]] = {}  # by array: its tasks that are jobs, by index
        self._running: dict[int, int] = {}
        self.waiting: dict[int, JobRecord] = {}  # by array: the record of its waiting tasks

    def admit(self, job: JobRecord, most: int) -> None:
        """Check the array's indices; write `array_tasks` in the shortest form. Raises NotAdmitted for bad indices."""
        try:
            tasks, limit = job_array.parse(job.array_tasks)
        except ValueError as error:
            raise NotAdmitted(f"Invalid job array specification: {error}") from None
        greatest = max((one[-1] for one in tasks), default=-1)
        if greatest >= most:
            raise NotAdmitted(
                f"Invalid job array specification: index {greatest}, {most - 1} is the greatest (max_array_size)"
            )
        job.array_tasks, job.array_limit = job_array.text_of(tasks), job.array_limit or limit
        job.array_job_id = job.job_id
        job.array_span = job_array.span(tasks)

    def add(self, job: JobRecord) -> None:
        """Register a new array record, or the job of a task."""
        if is_waiting_array(job):
            self.waiting[job.array_job_id] = job
        elif job.array_task_id is not None:
            self._live.setdefault(job.array_job_id, {})[job.array_task_id] = job

    def gone(self, job: JobRecord) -> None:
        """Remove an array record or a task."""
        self._parsed.pop(job.job_id, None)
        if self.waiting.get(job.array_job_id) is job:
            del self.waiting[job.array_job_id]
        tasks = self._live.get(job.array_job_id)
        if tasks is not None and job.array_task_id is not None and tasks.get(job.array_task_id) is job:
            del tasks[job.array_task_id]
            if not tasks:
                del self._live[job.array_job_id]

    def started(self, job: JobRecord) -> None:
        """Count a task as holding resources."""
        if job.array_task_id is not None:
            self._running[job.array_job_id] = self._running.get(job.array_job_id, 0) + 1

    def stopped(self, job: JobRecord) -> None:
        """Stop counting a task as holding resources."""
        if job.array_task_id is not None:
            left = self._running.get(job.array_job_id, 0) - 1
            if left > 0:
                self._running[job.array_job_id] = left
            else:
                self._running.pop(job.array_job_id, None)

    def is_full(self, job: JobRecord) -> bool:
        """True where the array runs as many tasks as allowed at a time."""
        return bool(job.array_limit) and self._running.get(job.array_job_id, 0) >= job.array_limit

    def tasks(self, job: JobRecord) -> job_array.Tasks:
        """Return the waiting indices of an array record."""
        text, parsed = self._parsed.get(job.job_id, ("", []))
        if text != job.array_tasks:
            text, parsed = job.array_tasks, job_array.tasks_of(job.array_tasks)
            self._parsed[job.job_id] = (text, parsed)
        return parsed

    def live_task(self, array: int, index: int) -> JobRecord | None:
        """Return the job of this array task, or the record in which the task waits; None where the task has ended."""
        task = self._live.get(array, {}).get(index)
        record = self.waiting.get(array)
        if task is None and record is not None and job_array.has(self.tasks(record), index):
            return record
        return task

    def is_live(self, array: int) -> bool:
        """True where some task of the array has not ended."""
        return array in self._live or array in self.waiting

    def live_tasks(self, array: int) -> Iterator[JobRecord]:
        """Yield the jobs of the array's tasks, and the record of the waiting tasks."""
        yield from self._live.get(array, {}).values()
        record = self.waiting.get(array)
        if record is not None:
            yield record

    def split(self, job: JobRecord, index: int | None = None) -> JobRecord:
        """Make the task with this index, or the first task, a separate job, and return the job.

        The job gets a new number; the last task keeps the record itself. Raises NotAdmitted where no number is left;
        then all tasks wait as before.
        """
        tasks = self.tasks(job)
        task_id = next(job_array.indices(tasks)) if index is None else index
        left = job_array.without(tasks, task_id)
        if not left:
            self.gone(job)
            job.array_tasks, job.array_task_id = "", task_id
            self.add(job)
            return job
        number = self._new_id()  # before anything is changed
        self._set(job, left)
        task = replace(
            job, job_id=number, array_task_id=task_id, array_tasks="", select_jobinfo=None,
            details=copy(job.details), job_state=PENDING, job_resrcs=None, node_bitmap=None, nodes="",
        )  # fmt: skip
        self.add(task)
        return task

    def drop(self, job: JobRecord, gone: job_array.Tasks) -> bool:
        """Remove the tasks `gone` from the waiting tasks.

        Return True where none would remain; the record then stays unchanged.
        """
        left = job_array.without_all(self.tasks(job), gone)
        if left and left != self.tasks(job):
            self._set(job, left)
        return not left

    def _set(self, job: JobRecord, tasks: job_array.Tasks) -> None:
        job.array_tasks = job_array.text_of(tasks)
        self._parsed[job.job_id] = (job.array_tasks, tasks)
