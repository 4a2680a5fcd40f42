"""Names of jobs as people write them: "7", "7_3" for a task of an array, "7_[0-4]" for several. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nodectl.model.number import whole
from nodectl.scheduler import job_array
from nodectl.selection.records import JobRecord

LARGEST = 2**32 - 1
_LONGEST = 1000  # characters of a displayed name: a call may not contain a longer name


class BadName(ValueError):
    """A malformed name of a job; str() is a single line."""


class JobName(NamedTuple):
    """The meaning of a name: a job or an array and, if the name selects tasks of an array, the indices of the tasks.

    `tasks` has the indices as written, `indices` as ranges.
    """

    job: int
    tasks: str = ""
    indices: job_array.Tasks = []  # noqa: RUF012  # no code changes the list


def parse(text: str, spend: Callable[[int], None] = job_array.freely) -> JobName:
    """Parse a name. `spend` as in `job_array.tasks_of`. Raises BadName, and any error of `spend`."""
    number, underscore, tasks = text.strip().partition("_")
    job = whole(number, LARGEST)
    if not job or (underscore and not tasks):
        raise BadName(f"{text[:64]!r} is no job: write 7, 7_3 or 7_[0-4]")
    if tasks.startswith("[") != tasks.endswith("]"):
        raise BadName(f"{text[:64]!r}: a bracket is missing")
    tasks = tasks.removeprefix("[").removesuffix("]")
    try:
        return JobName(job, tasks, job_array.tasks_of(tasks, spend) if tasks else [])
    except ValueError as error:
        raise BadName(f"{text[:64]!r}: {error}") from None


def name_of(job: JobRecord) -> str:
    """Return the name by which people know a job."""
    if job.array_task_id is not None:
        return f"{job.array_job_id}_{job.array_task_id}"
    if job.array_tasks:
        limit = f"%{job.array_limit}" if job.array_limit else ""
        return f"{job.array_job_id or job.job_id}_[{_short(job.array_tasks)}{limit}]"
    return str(job.job_id)


def _short(tasks: str) -> str:
    return tasks if len(tasks) <= _LONGEST else f"{tasks[:_LONGEST].rpartition(',')[0]},..."
