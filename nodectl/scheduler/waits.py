"""Dependencies of waiting jobs, followed through starts and ends of jobs.

Values only, in the daemon's event loop and in planning commands. Terms already met are struck off `details.dependency`,
so that the text always holds exactly the terms still to be met.

The cost of a start or an end does not depend on the number of waiting jobs: each awaited event is looked at once, and
only jobs for which something is different are marked. The terms of a marked job are checked at the next look, not when
a user asks about the job. All waiting jobs of one user have a bounded number of terms together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping

from nodectl.model.states import PENDING, RUNNING, SUSPENDED
from nodectl.model.value_class import dataclass, field
from nodectl.scheduler import job_array
from nodectl.scheduler.arrays import Arrays, is_waiting_array
from nodectl.scheduler.corresponding import Corresponding
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.dependency import AFTER_CORR, EXPAND, SINGLETON, BadDependency, Dependency, Term, parse
from nodectl.scheduler.happened import Happened, Outcome, Target, base
from nodectl.scheduler.namesakes import Namesakes
from nodectl.scheduler.watchers import DONE, NEVER, Watchers
from nodectl.selection.records import JobRecord

_MOST_LOOKED_AT = 10_000
_MOST_TERMS = 20_000  # of one user's waiting jobs together
_MOST_CORRESPONDING = 4_000_000  # indices of one array, for each array that they wait for
_FOR_NOW = (EXPAND, SINGLETON)  # kinds of terms met now, and perhaps not later


@dataclass(slots=True)
class _Wanted:
    """The dependency of a job.

    `watched`: the terms followed by `Watchers`, each with its target. `at`: when these are met, as of the last look.
    `is_old`: one of these terms has changed since.
    """

    dependency: Dependency
    watched: dict[Term, Target] = field(default_factory=dict)
    fresh: tuple[Term, ...] = ()  # terms checked at each look
    at: float | None = DONE
    is_old: bool = True


def no_target(term: Term) -> NotAdmitted:
    """Return the refusal of a dependency on a job that is not known, or that its user may not know of."""
    return NotAdmitted(f"Job dependency problem: there is no job {str(term).partition(':')[2]}", "dependency")


class Waits:
    """The dependencies of all waiting jobs.

    `outcome` returns the final state of jobs that ended before `ended` was called for them.
    """

    def __init__(
        self, jobs: Mapping[int, JobRecord], arrays: Arrays, outcome: Callable[[int, int | None], Outcome | None]
    ) -> None:
        self._jobs = jobs
        self._arrays = arrays
        self._happened = Happened(jobs, arrays, outcome)
        self._names = Namesakes(jobs)
        self._watchers = Watchers(self._happened)
        self._corresponding = Corresponding(
            arrays, lambda array, index: self._watchers.corresponds(array, index) == DONE
        )
        self._wanted: dict[int, _Wanted] = {}
        self._by_array: dict[int, set[int]] = {}  # those in `_wanted`, by job or array
        self._terms: Counter[int] = Counter()  # by user

    def known(self, job: JobRecord) -> None:
        """Register a job."""
        self._names.add(job)
        self._happened.known(job)

    def rename(self, job: JobRecord, name: str) -> None:
        """Register the job under a new name, which the caller gives to `job` afterwards."""
        self._names.renamed(job, name)

    def want(self, job: JobRecord, text: str) -> None:
        """Set the job's dependency. Raises NotAdmitted; the job then keeps the earlier dependency."""
        self._set(job, self._read(job, text) if text else Dependency(()))

    def learning(self, text: str) -> Generator[None, None, None]:
        """Ask the history about the jobs named in a dependency, up to the first unknown job. `want` uses the answers.

        The caller may leave the generator at any yield.
        """
        try:
            terms = parse(text).terms if text else ()
        except BadDependency:
            return
        for term in terms:
            if term.kind != SINGLETON and not self._happened.is_known(term.job_id, term.task):
                return
            yield

    def restore(self, job: JobRecord) -> None:
        """Restore the dependency of an earlier daemon's job; an invalid text counts as no dependency."""
        try:
            wanted = parse(job.details.dependency) if job.details.dependency else Dependency(())
        except BadDependency:
            wanted = Dependency(())
        self._set(job, wanted)

    def admit_another(self, job: JobRecord) -> None:
        """Check the room for another job with the same dependency. Raises NotAdmitted for too many terms."""
        wanted = self._wanted.get(job.job_id)
        if wanted is not None:
            self._admit(job, len(wanted.dependency.terms))

    def forget(self, job: JobRecord) -> None:
        """Drop the job's dependency."""
        wanted = self._wanted.pop(job.job_id, None)
        if wanted is None:
            return
        self._names.waits_no_more(job)
        self._corresponding.forget(job)
        self._by_array[base(job)].discard(job.job_id)
        if not self._by_array[base(job)]:
            del self._by_array[base(job)]
        self._terms[job.user_id] -= len(wanted.dependency.terms)
        if not self._terms[job.user_id]:
            del self._terms[job.user_id]
        for term, target in wanted.watched.items():
            self._watchers.leave(job, term.kind, target)
        if wanted.dependency.expands:
            self._watchers.leave(job, EXPAND, (wanted.dependency.expands, None))

    def gone(self, job: JobRecord) -> None:
        """Remove an ended job."""
        self.forget(job)
        self._names.gone(job)

    def started(self, job: JobRecord) -> list[JobRecord]:
        """Note the start of a job; return the jobs to look at."""
        self._names.started(job)
        self._happened.started(job)
        return self._told(job, self._watchers.changed(job))

    def ended(self, job: JobRecord, state: str) -> list[JobRecord]:
        """Note the end of a job, already removed from the jobs; return the jobs to look at."""
        is_all = self._happened.ended(job, state)
        told = self._watchers.changed(job)
        if job.array_task_id is not None:
            told |= self._corresponding.ended(job.array_job_id, job.array_task_id)
        if is_all:
            told |= self._corresponding.all_ended(base(job))
            told |= self._watchers.all_ended(base(job))
        return self._told(job, told)

    def tasks_cancelled(self, job: JobRecord, gone: job_array.Tasks) -> list[JobRecord]:
        """Note the cancellation of waiting tasks of an array; return the jobs to look at."""
        array = base(job)
        self._happened.tasks_cancelled(array)
        return self._told(job, self._watchers.cancelled(array, gone))

    def state(self, job: JobRecord, now: float) -> float | None:
        """Return when the job's dependency is met: DONE, NEVER, a time, or None. Strikes off the terms already met."""
        wanted = self._wanted.get(job.job_id)
        if wanted is None:
            return DONE
        if wanted.is_old or (wanted.at is not None and DONE < wanted.at <= now):
            self._look(job, wanted, now)
        if job.job_id not in self._wanted:
            return DONE
        times = [self._time(job, term) for term in wanted.fresh]
        if not wanted.dependency.any:
            return _last((wanted.at, *times))
        return DONE if DONE in times else _first((wanted.at, *times))

    def is_unfinished(self, job: JobRecord) -> bool:
        """True where `state` has to be called again, because only some of many tasks were looked at."""
        return self._corresponding.is_unfinished(job)

    def _look(self, job: JobRecord, wanted: _Wanted, now: float) -> None:
        """Check the watched terms of a job."""
        times = {term: self._watchers.time(term, target) for term, target in wanted.watched.items()}
        met = {term for term, at in times.items() if at is not None and at <= now}
        wanted.is_old = False
        if wanted.dependency.any:
            if met:
                self.forget(job)
                job.details.dependency = ""
            wanted.at = _first(times.values()) if times else NEVER
            return
        for term in met:
            self._watchers.leave(job, term.kind, wanted.watched.pop(term))
        wanted.at = _last(at for term, at in times.items() if term not in met)
        if met:
            self._terms[job.user_id] -= len(met)
            wanted.dependency = wanted.dependency.without(met)
            job.details.dependency = str(wanted.dependency)
            if not wanted.dependency.terms:
                self.forget(job)

    def _set(self, job: JobRecord, dependency: Dependency) -> None:
        """Replace the job's dependency."""
        self.forget(job)
        job.details.dependency = str(dependency)
        if not dependency.terms:
            return
        fresh = tuple(term for term in dependency.terms if term.kind in _FOR_NOW or self._is_by_task(job, term))
        wanted = self._wanted[job.job_id] = _Wanted(dependency, fresh=fresh)
        self._by_array.setdefault(base(job), set()).add(job.job_id)
        self._terms[job.user_id] += len(dependency.terms)
        for term in dependency.terms:
            if term.kind == SINGLETON:
                self._names.waits(job)
            elif term.kind == EXPAND:
                self._watchers.watch(job, EXPAND, (term.job_id, None))
            elif not self._is_by_task(job, term):
                task = job.array_task_id if term.kind == AFTER_CORR else term.task
                wanted.watched[term] = (term.job_id, task)
                self._watchers.watch(job, term.kind, (term.job_id, task))
        followed = [term.job_id for term in fresh if term.kind == AFTER_CORR]
        if followed:
            self._corresponding.follow(job, followed)

    def whom(self, job: JobRecord, most: int) -> list[JobRecord]:
        """Return jobs to be started or ended first, at most `most`."""
        wanted = self._wanted.get(job.job_id)
        found: dict[int, JobRecord] = {}
        for term in wanted.dependency.terms if wanted is not None else ():
            others = self._names.before(job) if term.kind == SINGLETON else self._happened.live(term.job_id, term.task)
            for other in others:
                if len(found) >= most:
                    return list(found.values())
                found[other.job_id] = other
        return list(found.values())

    def expands(self, job: JobRecord) -> JobRecord | None:
        """Return the unfinished job to be expanded by this job, or None."""
        wanted = self._wanted.get(job.job_id)
        number = wanted.dependency.expands if wanted is not None else 0
        return self._jobs.get(number) if number else None

    def is_expanded(self, job: JobRecord) -> bool:
        """True where another job waits to expand this job."""
        return self._watchers.is_wanted(EXPAND, job.job_id)

    def next_task(self, job: JobRecord) -> int | None:
        """Return the first known task of a waiting array for which aftercorr is met.

        None where there is none, or where the search is unfinished.
        """
        return self._corresponding.next(job)

    def task_split(self, job: JobRecord, task: JobRecord) -> None:
        """Drop the dependency of a task about to start, met by the array."""
        if task is job:
            self.forget(job)
        task.details.dependency = ""
        self.known(task)

    def _read(self, job: JobRecord, text: str) -> Dependency:
        try:
            wanted = parse(text)
        except BadDependency as error:
            raise NotAdmitted(f"Job dependency problem: {error}") from None
        before = self._wanted.get(job.job_id)
        self._admit(job, len(wanted.terms) - (len(before.dependency.terms) if before is not None else 0))
        self._admit_corresponding(job, wanted)
        for term in wanted.terms:
            if term.kind != SINGLETON and not self._happened.is_known(term.job_id, term.task):
                raise no_target(term)
        self._refuse_loops(job, wanted)
        return wanted

    def _admit(self, job: JobRecord, more: int) -> None:
        count = self._terms[job.user_id] + more
        if job.user_id and more > 0 and count > _MOST_TERMS:
            raise NotAdmitted(
                f"Job dependency problem: the waiting jobs of {job.user_name} would wait for {count} jobs in all, and "
                f"{_MOST_TERMS} is the most: name fewer, name whole arrays, or submit it when some have ended"
            )

    def _admit_corresponding(self, job: JobRecord, wanted: Dependency) -> None:
        arrays = sum(term.kind == AFTER_CORR for term in wanted.terms)
        if not arrays or not is_waiting_array(job):
            return
        tasks = job_array.size(self._arrays.tasks(job))
        if tasks * arrays > _MOST_CORRESPONDING:
            raise NotAdmitted(
                f"Job dependency problem: {tasks} tasks would each wait for {arrays} others ({AFTER_CORR}), and "
                f"{_MOST_CORRESPONDING} is the most in all: name fewer arrays, or make smaller ones"
            )

    def _refuse_loops(self, job: JobRecord, wanted: Dependency) -> None:
        own, seen = {job.job_id, base(job)}, set()
        ahead = [term.job_id for term in wanted.terms if term.kind != SINGLETON]
        if own.intersection(ahead):
            raise NotAdmitted("Job dependency problem: the job would wait for itself")
        if not any(map(self._watchers.is_watched, own)):
            return  # no other job waits for it
        looked_at = 0
        while ahead:
            target = ahead.pop()
            if target in own:
                raise NotAdmitted("Job dependency problem: the job would wait for itself")
            if target in seen:
                continue
            seen.add(target)
            for number in {target, *self._by_array.get(target, ())}:
                later = self._wanted.get(number)
                further = [term.job_id for term in later.dependency.terms if term.kind != SINGLETON] if later else []
                looked_at += 1 + len(further)
                if looked_at > _MOST_LOOKED_AT:
                    raise NotAdmitted("Job dependency problem: too many jobs wait for each other")
                ahead += further

    def _is_by_task(self, job: JobRecord, term: Term) -> bool:
        return term.kind == AFTER_CORR and is_waiting_array(job)

    def _time(self, job: JobRecord, term: Term) -> float | None:
        if term.kind == SINGLETON:
            return DONE if self._names.goes_first(job) else None
        if term.kind == EXPAND:
            return self._expandable(term)
        if self.next_task(job) is not None:
            return DONE
        return None if self.is_unfinished(job) or self._happened.is_live(term.job_id) else NEVER

    def _expandable(self, term: Term) -> float | None:
        target = self._jobs.get(term.job_id)
        if target is not None and target.job_state == PENDING:
            return None
        return DONE if target is not None and target.job_state in (RUNNING, SUSPENDED) else NEVER

    def _told(self, job: JobRecord, numbers: Iterable[int]) -> list[JobRecord]:
        """Mark these jobs to be looked at, and return them with the next singleton job of the job's name."""
        found = [self._jobs[number] for number in sorted(numbers) if number in self._jobs]
        for one in found:
            wanted = self._wanted.get(one.job_id)
            if wanted is not None:
                wanted.is_old = True
        alone = self._names.next_alone(job)
        if alone is not None:
            found.append(alone)
        return found


def _last(times: Iterable[float | None]) -> float | None:
    """Return when all terms are met."""
    all_times = set(times)
    if NEVER in all_times:
        return NEVER
    return None if None in all_times else max((at for at in all_times if at is not None), default=DONE)


def _first(times: Iterable[float | None]) -> float | None:
    """Return when any term is met."""
    all_times = set(times)
    soonest = min((at for at in all_times if at is not None), default=NEVER)
    return soonest if soonest != NEVER else None if None in all_times else NEVER
