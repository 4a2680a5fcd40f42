"""Names of jobs as people write them: "7", "7_3" for a task of an array, "7_[0-4]" for several. Pure."""

from __future__ import annotations

from typing import NamedTuple

from nodectl.model.number import whole
from nodectl.selection.records import JobRecord

_LARGEST = 2**32 - 1


class BadName(ValueError):
    """No name of a job; str() is one line."""


class JobName(NamedTuple):
    """What a name means: a job or an array, and, where only some tasks of it are meant, their indices as a text."""

    job: int
    tasks: str = ""


def parse(text: str) -> JobName:
    """Reads a name. Raises BadName."""
    number, underscore, tasks = text.strip().partition("_")
    job = whole(number, _LARGEST)
    if not job or (underscore and not tasks):
        raise BadName(f"{text[:64]!r} is no job: write 7, 7_3 or 7_[0-4]")
    if tasks.startswith("[") != tasks.endswith("]"):
        raise BadName(f"{text[:64]!r}: a bracket is missing")
    tasks = tasks.removeprefix("[").removesuffix("]")
    if underscore and not all(char.isdecimal() or char in "-,:" for char in tasks):
        raise BadName(f"{text[:64]!r}: indices are numbers and ranges as 0-4,7")
    return JobName(job, tasks)


def has_task(tasks: str, index: int) -> bool:
    """Whether indices as "0-4:2,7" hold this one. Raises BadName."""
    for part in tasks.split(","):
        span, _, step = part.partition(":")
        low, dash, high = span.partition("-")
        numbers = [whole(word, _LARGEST) for word in (low, high if dash else low, step or "1")]
        first, last, every = numbers
        if first is None or last is None or not every or last < first:
            raise BadName(f"{part[:64]!r}: indices are numbers and ranges as 0-4,7")
        if first <= index <= last and (index - first) % every == 0:
            return True
    return False


def name_of(job: JobRecord) -> str:
    """The name by which people know a job."""
    if job.array_task_id is not None:
        return f"{job.array_job_id}_{job.array_task_id}"
    if job.array_tasks:
        limit = f"%{job.array_limit}" if job.array_limit else ""
        return f"{job.array_job_id or job.job_id}_[{job.array_tasks}{limit}]"
    return str(job.job_id)
