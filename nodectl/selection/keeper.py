"""Copies of jobs' records made before each call of a plugin, to undo changes not allowed to the plugin.

The document lets some functions write into a job's record. What a site may decide there (`_WRITABLE`) takes effect when
the function succeeds. What the service goes by (states, times, what the job holds) stays as it is, and the log says so.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, is_not

from nodectl.model.value_class import names
from nodectl.selection.records import JobRecord, JobResources
from nodectl.selection.resources import copied

_NAMES = names(JobRecord)
_values: Callable[[JobRecord], tuple[object, ...]] = attrgetter(*_NAMES)
_LONGEST_WORD, _LONGEST_TEXT = 256, 65_536
_MOST_PRIORITY, _MOST_SECONDS = 2**32 - 1, 2**31 - 1
_ANSWERS = {
    "job_test": {"job_resrcs", "start_time"},
    "job_expand": {"job_resrcs", "node_bitmap"},
    "job_resized": {"job_resrcs", "node_bitmap"},
}
"""What a function answers by what it writes; who calls it decides about that."""
_PLACES = {"node_bitmap", "nodes"}  # which job_test fills in Slurm; here they follow from its answer
Kept = list[tuple[JobRecord, tuple[object, ...]]]


def _is_text(value: object) -> bool:
    return type(value) is str and len(value) <= _LONGEST_TEXT


def _is_word(value: object) -> bool:
    return type(value) is str and len(value) <= _LONGEST_WORD and value.isprintable()


def _up_to(most: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and 0 <= value <= most


_WORDS: dict[str, Callable[[object], bool]] = {"comment": _is_text, "state_desc": _is_text}
"""What any function may write, with what the value has to be."""
_DECISIONS = {**_WORDS, "name": _is_word, "account": _is_word, "priority": _up_to(_MOST_PRIORITY)}
_WRITABLE = {
    "job_begin": {**_DECISIONS, "time_limit": _up_to(_MOST_SECONDS)},  # its runner learns it afterwards
    "job_fini": _DECISIONS,
    "job_suspend": _DECISIONS,
    "job_resume": _DECISIONS,
}
"""What the functions may write to which the document gives a record "that may safely be read or written"."""


class Keeper:
    """Copies of the resources of each job; no copies with `watches=False`."""

    def __init__(self, *, watches: bool = True) -> None:
        self._watches = watches
        self._holds: dict[JobRecord, JobResources] = {}

    def holds(self, job: JobRecord) -> None:
        """Copy the resources in the job's record."""
        if job.job_resrcs is None:
            self._holds.pop(job, None)
        elif self._watches:
            self._holds[job] = copied(job.job_resrcs)

    def forget(self, job: JobRecord) -> None:
        """Drop the copy of the job's resources."""
        self._holds.pop(job, None)

    def before(self, arguments: tuple[object, ...]) -> Kept:
        """Return the records among the arguments of a call with the present values."""
        if not self._watches:
            return []
        return [(one, _values(one)) for one in arguments if type(one) is JobRecord]

    def after(self, name: str, kept: Kept, *, succeeded: bool) -> dict[str, str]:
        """Put back the fields closed to this function. Return the faults by the name of the field.

        After a failure the fields open to it are put back too, except the words in `comment` and `state_desc`.
        """
        wrong: dict[str, str] = {}
        for job, values in kept:
            if any(map(is_not, values, _values(job))):
                for field in _put_back(job, values, name, succeeded=succeeded):
                    wrong[field] = f"changed {field} of job {job.job_id}, which is as it was"
            held = self._holds.get(job)
            if held is not None and "node_bitmap" not in _ANSWERS.get(name, ()) and not _same(job, held):
                job.job_resrcs, job.node_bitmap = copied(held), held.node_bitmap.copy()
                wrong["job_resrcs"] = f"changed what job {job.job_id} holds"
        return wrong


def _put_back(job: JobRecord, values: tuple[object, ...], name: str, *, succeeded: bool) -> list[str]:
    """Put back fields of the job, and return the names of the fields wrongly written."""
    may_write = _WRITABLE.get(name, _WORDS)
    answer: set[str] = _ANSWERS.get(name, set())
    quiet = _PLACES if name == "job_test" else ()
    wrong = []
    for field, before in zip(_NAMES, values, strict=True):
        now = getattr(job, field)
        if now is before or field in answer:
            continue
        is_allowed = field in may_write and may_write[field](now)
        if is_allowed and (succeeded or field in _WORDS):
            continue
        setattr(job, field, before)
        if not is_allowed and field not in quiet and not _equal(now, before):
            wrong.append(field)
    return wrong


def _equal(now: object, before: object) -> bool:
    """True where both values are equal and of the same class. A plugin's own class may compare in any way, or raise."""
    try:
        return type(now) is type(before) and bool(now == before)
    except Exception:
        return False


def _same(job: JobRecord, held: JobResources) -> bool:
    try:
        return bool(job.job_resrcs == held and job.node_bitmap == held.node_bitmap)
    except Exception:
        return False
