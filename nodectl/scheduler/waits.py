"""Which jobs wait for what has not happened to other jobs: it follows starts and ends.

Values only, in the daemon's event loop and in commands that plan. What has happened is struck off `details.dependency`,
so that the text is at each moment what a job still waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from nodectl.scheduler import job_array
from nodectl.scheduler.arrays import Arrays, is_waiting_array
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.dependency import (
    AFTER,
    AFTER_ANY,
    AFTER_CORR,
    AFTER_NOT_OK,
    EXPAND,
    SINGLETON,
    BadDependency,
    Dependency,
    Term,
    parse,
)  # fmt: skip
from nodectl.selection.modes import PENDING, RUNNING, SUSPENDED
from nodectl.selection.records import JobRecord

Outcome = tuple[str, int]
"""State and exit code of a job that has ended."""
DONE, NEVER = 0.0, float("inf")
"""When a term is met: long ago, never; a time for later; None while that depends on another job."""
_KEPT = 10_000
_MOST_LOOKED_AT = 10_000
OK = "COMPLETED"
_FOR_NOW = (EXPAND, SINGLETON)  # what is so now, and may not be later
_Key = TypeVar("_Key", int, tuple[int, str])


def base(job: JobRecord) -> int:
    """The number by which others name it, or its array."""
    return job.array_job_id or job.job_id


class Waits:
    """`outcome` tells of jobs that ended before `ended` was called for them."""

    def __init__(
        self, jobs: Mapping[int, JobRecord], arrays: Arrays, outcome: Callable[[int, int | None], Outcome | None]
    ) -> None:
        self._jobs = jobs
        self._arrays = arrays
        self._ask = outcome
        self._wanted: dict[int, Dependency] = {}
        self._by_target: dict[int, set[int]] = {}
        self._singletons: dict[tuple[int, str], set[int]] = {}
        self._named: dict[tuple[int, str], set[int]] = {}
        self._ended: dict[tuple[int, int | None], Outcome] = {}
        self._began: dict[tuple[int, int | None], float] = {}  # when those in `_ended` did
        self._worst: dict[int, Outcome] = {}  # of arrays of which some tasks have ended

    def known(self, job: JobRecord) -> None:
        """The job is among the jobs from now on."""
        self._named.setdefault((job.user_id, job.name), set()).add(job.job_id)

    def rename(self, job: JobRecord, name: str) -> None:
        """It has another name from now on, which `job` is then given."""
        wanted = self._wanted.get(job.job_id)
        alone = wanted is not None and any(term.kind == SINGLETON for term in wanted.terms)
        for index in (self._named, self._singletons) if alone else (self._named,):
            _discard(index, (job.user_id, job.name), job.job_id)
            index.setdefault((job.user_id, name), set()).add(job.job_id)

    def want(self, job: JobRecord, text: str) -> None:
        """What the job waits for from now on. Raises NotAdmitted; then it waits for what it did."""
        self._set(job, self._read(job, text) if text else Dependency(()))

    def restore(self, job: JobRecord) -> None:
        """What an earlier daemon's job still waits for; a text that says nothing is nothing."""
        try:
            wanted = parse(job.details.dependency) if job.details.dependency else Dependency(())
        except BadDependency:
            wanted = Dependency(())
        self._set(job, wanted)

    def forget(self, job: JobRecord) -> None:
        """It waits for nothing."""
        wanted = self._wanted.pop(job.job_id, None)
        for term in wanted.terms if wanted is not None else ():
            if term.kind == SINGLETON:
                _discard(self._singletons, (job.user_id, job.name), job.job_id)
            else:
                _discard(self._by_target, term.job_id, job.job_id)

    def gone(self, job: JobRecord) -> None:
        """The job has ended."""
        self.forget(job)
        _discard(self._named, (job.user_id, job.name), job.job_id)

    def started(self, job: JobRecord) -> list[JobRecord]:
        """Who has to be looked at because this one started."""
        return self._waiting_for(job)

    def ended(self, job: JobRecord, state: str, exit_code: int) -> list[JobRecord]:
        """Who has to be looked at because this one ended. Call it when it is among the jobs no more."""
        self._note(job, (state, exit_code))
        return self._waiting_for(job)

    def tasks_cancelled(self, job: JobRecord) -> list[JobRecord]:
        """Who has to be looked at because waiting tasks of this array were cancelled."""
        self._worst[base(job)] = ("CANCELLED", 0)
        return self._waiting_for(job)

    def state(self, job: JobRecord, now: float) -> float | None:
        """When the job's dependency is met: DONE, NEVER, a time, or None. What is done is struck off."""
        wanted = self._wanted.get(job.job_id)
        if wanted is None:
            return DONE
        times = {term: self._time(job, term) for term in wanted.terms}
        met = {term for term, at in times.items() if at is not None and at <= now}
        if wanted.any:
            return self._any_state(job, met, times)
        lasting = {term for term in met if term.kind not in _FOR_NOW and not self._is_by_task(job, term)}
        if lasting:
            self._set(job, wanted.without(lasting))
        open_times = [at for term, at in times.items() if term not in met]
        if NEVER in open_times:
            return NEVER
        if None in open_times:
            return None
        return max((at for at in open_times if at is not None), default=DONE)

    def _any_state(self, job: JobRecord, met: set[Term], times: dict[Term, float | None]) -> float | None:
        if met:
            if not any(term.kind == SINGLETON or self._is_by_task(job, term) for term in met):
                self.forget(job)
                job.details.dependency = ""
            return DONE
        later = [at for at in times.values() if at is not None]
        if len(later) == len(times):
            return min(later)
        return min((at for at in later if at != NEVER), default=None)

    def _set(self, job: JobRecord, wanted: Dependency) -> None:
        """What is left of what it waits for."""
        self.forget(job)
        job.details.dependency = str(wanted)
        if wanted.terms:
            self._wanted[job.job_id] = wanted
            for term in wanted.terms:
                if term.kind == SINGLETON:
                    self._singletons.setdefault((job.user_id, job.name), set()).add(job.job_id)
                else:
                    self._by_target.setdefault(term.job_id, set()).add(job.job_id)

    def whom(self, job: JobRecord) -> list[JobRecord]:
        """The jobs that must start or end first."""
        wanted = self._wanted.get(job.job_id)
        found: list[JobRecord] = []
        for term in wanted.terms if wanted is not None else ():
            found += list(self._others(job)) if term.kind == SINGLETON else self._targets(term)
        return list({one.job_id: one for one in found}.values())

    def expands(self, job: JobRecord) -> JobRecord | None:
        """The job that has not ended and is to get all that this one gets; None where there is none."""
        wanted = self._wanted.get(job.job_id)
        return self._jobs.get(wanted.expands) if wanted is not None and wanted.expands else None

    def is_expanded(self, job: JobRecord) -> bool:
        """Whether another job is to give it what that one gets."""
        others = (self._wanted.get(number) for number in self._by_target.get(job.job_id, ()))
        return any(wanted is not None and wanted.expands == job.job_id for wanted in others)

    def next_task(self, job: JobRecord) -> int | None:
        """The first task of a waiting array that may start as far as aftercorr goes; None where none may."""
        wanted = self._wanted.get(job.job_id)
        terms = [term for term in wanted.terms if term.kind == AFTER_CORR] if wanted is not None else []
        for looked_at, index in enumerate(job_array.indices(self._arrays.tasks(job))):
            if looked_at > _MOST_LOOKED_AT:
                break
            if all(self._corresponding(term, index) == DONE for term in terms):
                return index
        return None

    def task_split(self, job: JobRecord, task: JobRecord) -> None:
        """A task that starts has met what its array waited for."""
        if task is job:
            self.forget(job)
        task.details.dependency = ""
        self.known(task)

    def _read(self, job: JobRecord, text: str) -> Dependency:
        try:
            wanted = parse(text)
        except BadDependency as error:
            raise NotAdmitted(f"Job dependency problem: {error}") from None
        for term in wanted.terms:
            if term.kind != SINGLETON and not self._is_known(term):
                raise NotAdmitted(
                    f"Job dependency problem: there is no job {str(term).partition(':')[2]}", "dependency"
                )
        self._refuse_loops(job, wanted)
        return wanted

    def _is_known(self, term: Term) -> bool:
        return bool(self._targets(term)) or self._outcome(term.job_id, term.task) is not None

    def _refuse_loops(self, job: JobRecord, wanted: Dependency) -> None:
        own, seen = {job.job_id, base(job)}, set()
        if not any(self._by_target.get(one) for one in own):
            own_terms = {term.job_id for term in wanted.terms}
            if own & own_terms:
                raise NotAdmitted("Job dependency problem: the job would wait for itself")
            return  # nobody waits for it
        ahead = [term.job_id for term in wanted.terms if term.kind != SINGLETON]
        looked_at = 0
        while ahead:
            target = ahead.pop()
            looked_at += 1
            if looked_at > _MOST_LOOKED_AT:
                raise NotAdmitted("Job dependency problem: too many jobs wait for each other")
            if target in own:
                raise NotAdmitted("Job dependency problem: the job would wait for itself")
            if target in seen:
                continue
            seen.add(target)
            for one in self._live(target):
                later = self._wanted.get(one.job_id)
                ahead += [term.job_id for term in later.terms if term.kind != SINGLETON] if later is not None else []

    def _live(self, number: int) -> list[JobRecord]:
        """The job, or all of the array, of this number that has not ended."""
        found = self._arrays.live_tasks(number)
        job = self._jobs.get(number)
        return [*found, job] if job is not None and not any(job is one for one in found) else found

    def _targets(self, term: Term) -> list[JobRecord]:
        if term.task is None:
            return self._live(term.job_id)
        task = self._arrays.live_task(term.job_id, term.task)
        return [] if task is None else [task]

    def _is_by_task(self, job: JobRecord, term: Term) -> bool:
        return term.kind == AFTER_CORR and is_waiting_array(job)

    def _time(self, job: JobRecord, term: Term) -> float | None:
        if term.kind == SINGLETON:
            return DONE if next(self._others(job), None) is None else None
        if term.kind == AFTER:
            return self._after(term)
        if term.kind == EXPAND:
            return self._expandable(term)
        if self._is_by_task(job, term):
            return DONE if self.next_task(job) is not None else None if self._live(term.job_id) else NEVER
        if term.kind == AFTER_CORR and job.array_task_id is not None:
            return self._corresponding(term, job.array_task_id)
        if self._targets(term):
            return None
        outcome = self._outcome(term.job_id, term.task)
        if term.kind == AFTER_ANY:
            return DONE
        if outcome is None:
            return NEVER
        return DONE if (outcome[0] == OK) != (term.kind == AFTER_NOT_OK) else NEVER

    def _after(self, term: Term) -> float | None:
        live = self._targets(term)
        if any(one.job_state == PENDING and not one.restart_cnt for one in live):
            return None
        began = [one.start_time for one in live] or [self._began.get((term.job_id, term.task), 0.0)]
        return max(began) + term.minutes * 60

    def _expandable(self, term: Term) -> float | None:
        target = self._jobs.get(term.job_id)
        if target is not None and target.job_state == PENDING:
            return None
        return DONE if target is not None and target.job_state in (RUNNING, SUSPENDED) else NEVER

    def _corresponding(self, term: Term, index: int) -> float | None:
        if self._arrays.live_task(term.job_id, index) is not None:
            return None
        outcome = self._outcome(term.job_id, index)
        if outcome is None:  # no array: as afterok
            if self._live(term.job_id):
                return None
            outcome = self._outcome(term.job_id, None)
        return DONE if outcome is not None and outcome[0] == OK else NEVER

    def _others(self, job: JobRecord) -> Iterator[JobRecord]:
        """Those of its name and user that go first: all that run, and those that were submitted before."""
        for number in self._named.get((job.user_id, job.name), ()):
            other = self._jobs.get(number)
            if other is not None and other is not job and (other.is_active or base(other) < base(job)):
                yield other

    def _outcome(self, number: int, task: int | None) -> Outcome | None:
        return self._ended.get((number, task)) or self._ask(number, task)

    def _note(self, job: JobRecord, outcome: Outcome) -> None:
        self._keep((job.job_id, None), outcome, job.start_time)
        if job.array_job_id:
            if job.array_task_id is not None:
                self._keep((job.array_job_id, job.array_task_id), outcome, job.start_time)
            worst = self._worst.setdefault(job.array_job_id, outcome)
            if worst[0] == OK:
                self._worst[job.array_job_id] = outcome
            if not self._arrays.live_tasks(job.array_job_id):
                worst = self._worst.pop(job.array_job_id)
                # Tasks that ended under an earlier daemon are known to its records alone.
                asked = self._ask(job.array_job_id, None) if worst[0] == OK else None
                self._keep((job.array_job_id, None), asked or worst, job.start_time)

    def _keep(self, key: tuple[int, int | None], outcome: Outcome, began: float) -> None:
        self._ended.pop(key, None)
        self._ended[key], self._began[key] = outcome, began
        if len(self._ended) > _KEPT:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._began[oldest]

    def _waiting_for(self, job: JobRecord) -> list[JobRecord]:
        if not self._by_target and not self._singletons:
            return []
        waiting = {*self._by_target.get(base(job), ()), *self._by_target.get(job.job_id, ())}
        found = [self._jobs[number] for number in sorted(waiting) if number in self._jobs]
        alone = [self._jobs[one] for one in self._singletons.get((job.user_id, job.name), ()) if one in self._jobs]
        if alone:  # the others wait for this one at least
            found.append(min(alone, key=base))
        return found


def _discard(index: dict[_Key, set[int]], key: _Key, number: int) -> None:
    """Takes a number out of the index; a key without numbers goes."""
    numbers = index.get(key)
    if numbers is not None:
        numbers.discard(number)
        if not numbers:
            del index[key]
