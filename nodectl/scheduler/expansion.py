"""Jobs submitted to give a running job more resources: sbatch's --dependency=expand.

Such a job starts when the running job, its target, runs and there is room, and lasts as long as the target. Then it
gives all it holds to the target and ends. In the daemon and in planning commands.
"""

from __future__ import annotations

from nodectl.model.states import RUNNING
from nodectl.scheduler.book import Book
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.dependency import BadDependency, parse
from nodectl.selection.records import JobRecord

_LATER = 1.0  # seconds: a limit is told in whole ones


def admit(book: Book, job: JobRecord, text: str) -> None:
    """Check the job to be expanded by this dependency. Raises NotAdmitted where `job` cannot expand it."""
    try:
        number = parse(text).expands if text else 0
    except BadDependency:
        return  # `Waits.want` reads the text again and raises
    if not number:
        return
    target = book.jobs.get(number)
    if target is None or target.user_id != job.user_id or number == job.job_id:
        raise _refused(f"{job.user_name} has no other job {number} that could be expanded")
    why = _why_not(book, job, target)
    if not why and book.waits.is_expanded(job):
        why = f"another job is to expand job {job.job_id} itself"
    if not why and not book.selection.expand_allow():
        why = f"plugin {book.selection.title} cannot expand jobs"
    if why:
        raise _refused(why)


def target_of(book: Book, source: JobRecord) -> JobRecord:
    """Return the job expanded by `source`, the receiver of the resources. Raises NotAdmitted."""
    target = book.waits.expands(source)
    if target is None or target.user_id != source.user_id:
        raise NotAdmitted("it expands no job that runs: submit it with --dependency=expand:JOB")
    return target


def merge(book: Book, source: JobRecord, now: float) -> None:
    """Move all resources of `source` to the job expanded by `source`. Raises NotAdmitted."""
    target = target_of(book, source)
    why = _why_not(book, source, target)
    for job in (source, target):
        if job.job_state != RUNNING:
            why = why or f"job {job.job_id} is {job.job_state}, and not RUNNING"
    if not why and target.end_time > source.end_time + _LATER:
        why = f"job {target.job_id} may run longer than job {source.job_id} was given its resources"
    held = source.job_resrcs
    why = why or book.selection.expand(source, target)
    if why or held is None:
        raise NotAdmitted(why)
    book.merged(source, target, held, now)


def _why_not(book: Book, job: JobRecord, target: JobRecord) -> str:
    """Return the lasting reason for which `job` cannot expand `target`, whatever both hold; "" where there is none."""
    for one in (job, target):
        if one.array_tasks or one.array_job_id:
            return f"job {one.job_id} is of an array, of which none expands another or is expanded"
        if one.details.gres:
            return f"job {one.job_id} has devices: such a job does not expand another, and is not expanded"
    if book.waits.expands(target) is not None:
        return f"job {target.job_id} is to expand another job itself"
    for name in ("qos", "partition"):
        if getattr(job, name) != getattr(target, name):
            return f"job {target.job_id} has another {name}"
    if job.details.reservation != target.details.reservation:
        return f"job {target.job_id} has another reservation"
    return ""


def _refused(why: str) -> NotAdmitted:
    return NotAdmitted(f"Job dependency problem: {why}")
