"""Explanations of why a job waits: which rule, for which jobs, until when, and which change would help. In words.

In the daemon's event loop and in planning commands. Computed on request, from the state at that moment.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from bitarray import bitarray

from nodectl.model import reasons, states
from nodectl.model.device_part import WHOLE, device_of
from nodectl.model.value_class import dataclass
from nodectl.model.words import count_words, duration
from nodectl.placement.binding import devices
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.scheduler.backfill import Backfill, unplace
from nodectl.scheduler.book import Bar, Book
from nodectl.scheduler.forecast import Forecast
from nodectl.scheduler.limits import Block, asked
from nodectl.scheduler.reservation import Reservations
from nodectl.scheduler.room import Room, Shadow
from nodectl.selection.answers import Choice
from nodectl.selection.modes import SELECT_MODE_RUN_NOW
from nodectl.selection.records import JobRecord, JobResources

_T = TypeVar("_T")
_MOST_NAMED = 10
_MOST_QUESTIONS = 16  # as many as a look at the line asks before it pauses
_NO_LIMIT = 1 << 62
_AT_A_TIME = 16  # jobs, between two moments at which the caller may do other work
_MOST_POINTS = 512  # jobs of which the priorities are found at a time
_HELP = {
    reasons.HELD_BY_USER: "nodectl release {job}",
    reasons.HELD_BY_ADMIN: "an administrator: nodectl release {job}",
    reasons.NEVER_SATISFIED: "nodectl update {job} --dependency=..., or nodectl cancel {job}",
    reasons.BEGIN_TIME: "nodectl update {job} --begin=now",
    reasons.LAUNCH_FAILURE: "nodectl release {job} tries it at once",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to why a job waits.

    `reason`: Slurm's word, "" for a job that does not wait. `words`: one sentence. `for_whom`: the jobs for which it
    waits ("job 7 of ann"). `expected_start`: seconds since the epoch, None where unknown. `what_would_help`: what its
    user, or an administrator, could change.
    """

    reason: str
    words: str
    for_whom: tuple[str, ...] = ()
    expected_start: float | None = None
    what_would_help: tuple[str, ...] = ()


class Survey(NamedTuple):
    """All jobs waiting when the survey began, in order, with the known expected starts."""

    jobs: list[JobRecord]
    starts: Mapping[int, float | None]


class Explainer:
    """The source of explanations: `explain` for a single job; for many jobs a `survey`, and then `brief` for each.

    Each call asks the plugin few questions, however many jobs wait, so that a repeated call may explain more. These
    questions do not count among the queue's own.
    """

    def __init__(self, book: Book, room: Room, backfill: Backfill, reservations: Reservations) -> None:
        self._book = book
        self._room = room
        self._backfill = backfill
        self._reservations = reservations
        self._starts: tuple[tuple[float, int], dict[int, float | None]] = ((-1.0, 0), {})
        self._questions = 0  # of this call
        self._foreseen: dict[int, Shadow | None] = {}  # in this call

    def _called(self) -> None:
        self._questions, self._foreseen = 0, {}

    def line(self, now: float) -> list[JobRecord]:
        """Return the jobs of a survey."""
        self._called()
        return _finished(self._line(now))

    def survey(self, now: float) -> Generator[None, None, Survey]:
        """Survey the jobs in line in order, then the jobs outside of the line.

        `priority`, `state_reason` and `state_desc` of each are set to the present values. The caller may leave the
        generator at any yield, and the queue may change meanwhile.
        """
        self._called()
        jobs = yield from self._line(now)
        starts = yield from self._forecast(now)
        return Survey(jobs, starts)

    def _line(self, now: float) -> Generator[None, None, list[JobRecord]]:
        book = self._book
        ordered: list[JobRecord] = []
        for job in book.line.in_order(now):
            ordered.append(job)
            if not len(ordered) % _AT_A_TIME:
                yield
        there = set(ordered)
        others = [job for job in book.jobs.values() if job.job_state == states.PENDING and job not in there]
        yield
        yield from self._reasons(ordered, now)
        jobs = [*ordered, *sorted(others, key=lambda job: job.job_id)]
        for first in range(0, len(jobs), _MOST_POINTS):
            some = jobs[first : first + _MOST_POINTS]
            for job, points in zip(some, book.line.all_points(some, now), strict=True):
                job.priority = max(0, round(points))
            yield
        return jobs

    def _reasons(self, ordered: Iterable[JobRecord], now: float) -> Iterator[None]:
        """Set the reason for waiting in each job in line."""
        firsts: dict[str, JobRecord] = {}
        for place, job in enumerate(ordered):
            if not place % _AT_A_TIME:
                yield
            if job not in self._book.line or job.job_state != states.PENDING:
                continue  # it has left meanwhile
            pool = job.details.reservation
            block = self._backfill.block(job, now) if pool in firsts else self._block_of_first(job, now)
            if block is not None:
                job.state_reason, job.state_desc = block.reason, block.words
            elif firsts.setdefault(pool, job) is job:
                why = self._of_first(job, now)
                job.state_reason = reasons.RESOURCES if why.reason == reasons.NO_REASON else why.reason
                job.state_desc = why.words
            else:
                job.state_reason, job.state_desc = reasons.PRIORITY, f"{count_words(place, 'job')} before it in line"

    def briefs(self, jobs: Iterable[JobRecord], now: float) -> list[Explanation]:
        """Return a `brief` of each job, after a survey without interruption."""
        survey = _finished(self.survey(now))
        return [self.brief(job, now, survey.starts) for job in jobs]

    def brief(self, job: JobRecord, now: float, starts: Mapping[int, float | None]) -> Explanation:
        """Return reason, words and expected start of a job, from a recent survey."""
        if job.job_state != states.PENDING:
            return self._active(job)
        bar = self._book.bar(job, now)
        if bar is not None:
            return Explanation(bar.reason, bar.words, (), bar.until or None)
        return Explanation(job.state_reason, job.state_desc, (), starts.get(job.job_id))

    def explain(self, job: JobRecord, now: float) -> Explanation:
        """Return the full explanation, without work in between."""
        return _finished(self.explaining(job, now))

    def explaining(self, job: JobRecord, now: float) -> Generator[None, None, Explanation]:
        """Make the full explanation. The caller may leave the generator at any yield, also to change the queue."""
        self._called()
        if job.job_state != states.PENDING:
            return self._active(job)
        bar = self._book.bar(job, now)
        if bar is not None:
            return self._barred(job, bar)
        block = self._backfill.block(job, now)
        first = (yield from self._first(job, now)) if block is None else job
        if first is not job:
            return (yield from self._behind(job, first, now))
        if job.job_state != states.PENDING:
            return self._active(job)  # it has started meanwhile
        block = block or self._block_of_first(job, now)
        return self._of_first(job, now) if block is None else self._blocked(job, block, now)

    def expected_start(self, job: JobRecord, now: float) -> float | None:
        """Return the job's expected start by present knowledge; None where unknown."""
        self._called()
        return _finished(self._expected_start(job, now))

    def _expected_start(self, job: JobRecord, now: float) -> Generator[None, None, float | None]:
        if job.job_state != states.PENDING:
            return job.start_time or None
        bar = self._book.bar(job, now)
        if bar is not None:
            return bar.until if bar.reason == reasons.BEGIN_TIME else None
        if self._book.freed or self._starts[0] != (now, self._book.version):
            version = self._book.version
            starts = yield from self._forecast(now)
            self._starts = ((now, version), starts)
        return self._starts[1].get(job.job_id)

    def _active(self, job: JobRecord) -> Explanation:
        if job.job_state != states.SUSPENDED:
            return Explanation("", f"the job is {job.job_state.lower()}", (), job.start_time or None)
        if job.job_id in self._book.resuming:
            return Explanation(
                reasons.RESOURCES, "it goes on as soon as its CPUs are free", self._holders(job.job_resrcs, job)
            )
        if job.preempted_by:
            other = self._book.jobs.get(job.preempted_by)
            names = (_name(other),) if other is not None else ()
            return Explanation(reasons.WAS_PREEMPTED, "a job of a more urgent quality of service has its CPUs", names)
        return Explanation("", "it is suspended", (), None, (f"nodectl resume {job.job_id}",))

    def _barred(self, job: JobRecord, bar: Bar) -> Explanation:
        for_whom = tuple(map(_name, self._book.waits.whom(job, _MOST_NAMED))) if "Depend" in bar.reason else ()
        hint = _HELP.get(bar.reason)
        hints = (hint.format(job=job.job_id),) if hint else ()
        return Explanation(bar.reason, bar.words, for_whom, bar.until or None, hints)

    def _blocked(self, job: JobRecord, block: Block, now: float) -> Explanation:
        active = self._book.active.values()
        if block.reason == reasons.ARRAY_LIMIT:
            held = [one for one in active if one.array_job_id == job.array_job_id]
        elif block.reason == reasons.RESERVATION:
            held = []
        elif block.reason == reasons.DEPENDENCY:
            held = self._book.waits.whom(job, _MOST_NAMED)
        else:
            held = [one for one in active if one.user_id == job.user_id]
        one = self._reservations.by_name.get(job.details.reservation)
        start = (
            one.start_time if block.reason == reasons.RESERVATION and one is not None and one.start_time > now else None
        )
        start = start or block.until or None
        return Explanation(block.reason, block.words, _names(held), start, (block.help,) if block.help else ())

    def _first(self, job: JobRecord, now: float) -> Generator[None, None, JobRecord]:
        """Return the first job waiting for room in the same pool as `job`."""
        pool = job.details.reservation
        for place, one in enumerate(self._book.line.in_order(now)):
            if not place % _AT_A_TIME:
                yield
            if one is job:
                return job
            is_there = one in self._book.line and one.details.reservation == pool
            if is_there and self._block_of_first(one, now) is None:
                return one
        return job

    def _block_of_first(self, job: JobRecord, now: float) -> Block | None:
        """Return the reason for which the job cannot be the first in line, or None.

        On a full machine the queue has not asked what the job would be given; this method asks.
        """
        block = self._backfill.block(job, now)
        has_limits = self._book.accounts.has_limits or self._book.week
        if block is None and has_limits and self._shadow(job, now) is None:
            return self._backfill.block(job, now)
        return block

    def _shadow(self, job: JobRecord, now: float) -> Shadow | None:
        """Return the place kept for the job, or foreseen; None also after too many questions in this call."""
        known = self._room.first(job)
        if known is not None and known.job is job:
            return known
        if job.job_id not in self._foreseen and self._questions < _MOST_QUESTIONS:
            before = self._backfill.tests
            self._foreseen[job.job_id] = self._backfill.foresee(job, now)
            self._questions += self._backfill.tests - before
            self._backfill.tests = before
        return self._foreseen.get(job.job_id)

    def _of_first(self, job: JobRecord, now: float) -> Explanation:
        shadow = self._shadow(job, now)
        claim = self._room.claims.get(job.job_id)
        if claim is not None:
            return Explanation(
                reasons.RESOURCES, "other jobs are making room for it", _names(self._room.leaving(claim)), now
            )
        if shadow is None or shadow.resources is None:
            return self._unforeseen(job)
        if shadow.start <= now and self._placed(job, now, job.time_limit):
            return Explanation(reasons.NO_REASON, "it is about to start", (), now)
        words = f"it is the next to start: {self._lacks(job)}"
        holders = self._holders(shadow.resources, job)
        kept = self._reservations.overlapping(job, now, self._room.end_of(job, now))
        if kept and not holders:
            words = f"the cores that are free are kept by {', '.join(kept[:_MOST_NAMED])} when it would run"
            return Explanation(reasons.RESERVATION, words, (), self._known(shadow.start), self._shorter(job, now))
        if kept:
            words += f"; {', '.join(kept[:_MOST_NAMED])} keeps cores or devices when it would run"
        return Explanation(reasons.RESOURCES, words, holders, self._known(shadow.start), self._smaller(job, now))

    def _known(self, start: float) -> float | None:
        """Return `start`, or None for a guess: a job without a time limit holds the resources until then."""
        active = self._book.active.values()
        return None if any(not one.time_limit and one.end_time <= start for one in active) else start

    def _unforeseen(self, job: JobRecord) -> Explanation:
        away = [node for node in self._book.selection.nodes if not node.may_start_jobs]
        if away:
            names = ", ".join(f"{node.name}{f' ({node.reason})' if node.reason else ''}" for node in away[:_MOST_NAMED])
            words = f"nodes that it needs start no jobs now: {names}"
            return Explanation(reasons.NOT_AVAILABLE, words, (), None, ("an administrator: nodectl node resume",))
        return Explanation(reasons.RESOURCES, f"it is the next to start: {self._lacks(job)}")

    def _behind(self, job: JobRecord, first: JobRecord, now: float) -> Generator[None, None, Explanation]:
        ahead: list[JobRecord] = []
        for one in self._book.line.in_order(now):
            if one is job or len(ahead) > _MOST_NAMED:
                break
            yield
            if one.details.reservation == job.details.reservation:
                ahead.append(one)
        before = count_words(len(ahead), "job") if len(ahead) <= _MOST_NAMED else f"more than {_MOST_NAMED} jobs"
        words = f"{before} before it in line"
        start = yield from self._expected_start(job, now)
        if job.job_state != states.PENDING:
            return self._active(job)  # it has started meanwhile: nothing may be tried with it
        if not self._placed(job, now, job.time_limit, alone=True):
            return Explanation(
                reasons.PRIORITY, f"{words}; {self._lacks(job)}", _names(ahead), start, self._smaller(job, now)
            )
        words += f"; it would take what job {first.job_id} needs"
        return Explanation(reasons.PRIORITY, words, _names(ahead), start, self._shorter(job, now))

    def _lacks(self, job: JobRecord) -> str:
        wanted, cpus, memory = asked(job), self._room.free_cpus(), self._free_memory()
        if wanted.cpus > cpus:
            return (
                f"it asks for {count_words(wanted.cpus, 'CPU')}, {cpus or 'none'} {'is' if cpus <= 1 else 'are'} free"
            )
        if wanted.memory > memory:
            return f"it asks for {wanted.memory} MiB, {memory} are free"
        if wanted.devices:
            return self._lacks_devices(job)
        return "what it asks for is not free together"

    def _lacks_devices(self, job: JobRecord) -> str:
        nodes, ledger = self._book.selection.nodes, self._book.selection.ledger
        if len(nodes) == 1:
            away = nodes.devices_away.get(0, {})
            loads = ledger.loads(0) | dict.fromkeys(away, WHOLE)
            outside = "".join(f"; {key} {words}" for key, words in away.items())
            for one in devices.of_gres(job.details.gres):
                try:
                    devices.hold(nodes[0].devices, one, loads, 0, nodes[0].config, user=job.user_id)
                except NoLayout as refused:
                    return f"{refused.reason}{outside}"
        return "devices that it asks for are not free where it could run"

    def _free_memory(self) -> int:
        ledger = self._book.selection.ledger
        return sum(max(0, ledger.memory_free(node.index)) for node in self._book.selection.nodes)

    def _smaller(self, job: JobRecord, now: float) -> tuple[str, ...]:
        """Return hints at changes for an earlier start: fewer CPUs, time limits for running jobs, a shorter limit."""
        free = self._room.free_cpus()
        helps = [f"a job of at most {count_words(free, 'CPU')}"] if 0 < free < job.details.min_cpus else []
        waiting = [
            one for one in self._book.active.values() if not one.time_limit and one.job_state != states.COMPLETING
        ]
        if waiting:
            helps.append("time limits: jobs without one may run for ever, so the time is unknown")
        return (*helps, *self._shorter(job, now))

    def _shorter(self, job: JobRecord, now: float) -> tuple[str, ...]:
        """Return a hint at the time limit with which the job would start now, where there is such a limit."""
        shadow = self._room.first(job)
        times = [shadow.start] if shadow is not None and shadow.job is not job and not shadow.strict else []
        next_reservation = self._reservations.next_time(now)
        if next_reservation is not None:
            times.append(next_reservation)
        seconds = int(min(times, default=0.0) - now)
        if seconds < 60 or (job.time_limit and job.time_limit <= seconds) or not self._placed(job, now, seconds):
            return ()
        return (f"a time limit of at most {duration(seconds)}: then it could start at once",)

    def _placed(self, job: JobRecord, now: float, limit: int, *, alone: bool = False) -> bool:
        """True where the job would find a place now with this time limit; `alone`: if no other job were in line."""
        before = job.time_limit
        job.time_limit = limit
        try:
            end = self._room.end_of(job, now)
            excluded = self._room.kept(job, now, end) if alone else self._room.excluded(job, now)
            found = self._book.selection.job_test(job, SELECT_MODE_RUN_NOW, excluded_cores=excluded, now=now)
            unplace(job)
            return isinstance(found, Choice) and (alone or self._room.delays(job, found.resources, now) is None)
        finally:
            job.time_limit = before

    def _holders(self, wanted: JobResources | None, job: JobRecord) -> tuple[str, ...]:
        """Return the names of the jobs holding some of the wanted resources now."""
        if wanted is None:
            return ()
        return _names(
            [
                one for one in self._book.active.values()
                if one is not job and one.job_resrcs is not None and _meet(one, one.job_resrcs, wanted)
            ]
        )  # fmt: skip

    def _forecast(self, now: float) -> Generator[None, None, dict[int, float | None]]:
        """Forecast the starts of the first jobs in line, as many as a sweep tests."""
        book, room = self._book, self._room
        active = [
            one for one in book.active.values() if one.job_resrcs is not None and one.job_state != states.SUSPENDED
        ]
        memory = min(self._free_memory(), _NO_LIMIT)
        ends = [(max(one.end_time, now), one.total_cpus, _memory(one.job_resrcs)) for one in active]
        forecast = Forecast(now, self._room.free_cpus(), memory, ends)
        found: dict[int, float | None] = {}
        for number, job in enumerate(book.line.in_order(now)):
            if number >= book.policy.bf_max_job_test:
                break
            yield
            if job not in book.line:
                continue  # it has left meanwhile
            block = self._backfill.block(job, now) if found else self._block_of_first(job, now)
            if block is not None:
                continue
            shadow = self._shadow(job, now) if not found else None
            demand, seconds = asked(job), room.end_of(job, now) - now
            first = shadow.start if shadow is not None else now
            start = forecast.start(demand.cpus, demand.memory, seconds, not_before=first)
            if shadow is not None:
                found[job.job_id] = None if shadow.resources is None else self._known(shadow.start)
            elif start is not None and start <= now + book.policy.bf_window:
                found[job.job_id] = start
        return found


def _meet(job: JobRecord, held: JobResources, wanted: JobResources) -> bool:
    if job.job_state != states.SUSPENDED and _overlap(held.core_bitmap, wanted.core_bitmap):
        return True
    return any(
        set(map(device_of, keys)).intersection(map(device_of, wanted.gres.get(node, ())))
        for node, keys in held.gres.items()
    )


def _overlap(one: bitarray, other: bitarray) -> bool:
    return bool((one & other).any())


def _memory(resources: JobResources | None) -> int:
    return 0 if resources is None else sum(resources.memory.values())


def _names(jobs: list[JobRecord]) -> tuple[str, ...]:
    return tuple(map(_name, jobs[:_MOST_NAMED]))


def _name(job: JobRecord) -> str:
    number = f"{job.array_job_id}_{job.array_task_id}" if job.array_task_id is not None else str(job.job_id)
    return f"job {number} of {job.user_name}"


def _finished(pieces: Generator[None, None, _T]) -> _T:
    """Run the generator to the end without a break, and return the result."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typeshed has Any here
