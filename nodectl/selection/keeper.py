"""Jobs' records as they were before a plugin was called with them: what is not the plugin's to change is put back.

The document lets several functions write into a job's record. What the service goes by (states, times, what the job
holds) stays as it is; the plugin's words about a job, `comment` and `state_desc`, it may change.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, is_not

from nodectl.model.value_class import names
from nodectl.selection.records import JobRecord, JobResources
from nodectl.selection.resources import copied

_NAMES = names(JobRecord)
_values: Callable[[JobRecord], tuple[object, ...]] = attrgetter(*_NAMES)
_WORDS = {"comment", "state_desc"}
_ANSWER = {"job_resrcs", "start_time"}  # of job_test
Kept = list[tuple[JobRecord, tuple[object, ...]]]


class Keeper:
    """Knows what each job holds, in a copy of its own; nothing, where it watches nobody."""

    def __init__(self, *, watches: bool = True) -> None:
        self._watches = watches
        self._holds: dict[JobRecord, JobResources] = {}

    def holds(self, job: JobRecord) -> None:
        """From now on the job holds what its record says."""
        if job.job_resrcs is None:
            self._holds.pop(job, None)
        elif self._watches:
            self._holds[job] = copied(job.job_resrcs)

    def forget(self, job: JobRecord) -> None:
        """The job holds nothing any more."""
        self._holds.pop(job, None)

    def before(self, arguments: tuple[object, ...]) -> Kept:
        """The records among the arguments of a call, as they are now."""
        if not self._watches:
            return []
        return [(one, _values(one)) for one in arguments if type(one) is JobRecord]

    def after(self, name: str, kept: Kept) -> str:
        """Puts the records back; which of them says no more what its job holds, "" for none."""
        wrong = ""
        for job, values in kept:
            if any(map(is_not, values, _values(job))):
                _put_back(job, values, _ANSWER if name == "job_test" else ())
            held = self._holds.get(job)
            if held is not None and not _same(job, held):
                job.job_resrcs, job.node_bitmap = copied(held), held.node_bitmap.copy()
                wrong = f"changed what job {job.job_id} holds"
        return wrong


def _put_back(job: JobRecord, values: tuple[object, ...], answer: set[str] | tuple[()]) -> None:
    for name, value in zip(_NAMES, values, strict=True):
        now = getattr(job, name)
        if now is value or name in answer or (name in _WORDS and type(now) is str):
            continue
        setattr(job, name, value)


def _same(job: JobRecord, held: JobResources) -> bool:
    try:
        return bool(job.job_resrcs == held and job.node_bitmap == held.node_bitmap)
    except Exception:
        return False
