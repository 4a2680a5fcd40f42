"""A look at the line: which jobs start, make room or go on. In the daemon's event loop and in planning commands.

A sweep is a generator that its caller may leave at any yield: all is booked before. When meanwhile something is freed,
or the first in line leaves, it ends, and the next one begins anew.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from nodectl.model import reasons, states
from nodectl.scheduler import preemption
from nodectl.scheduler.backfill import Backfill
from nodectl.scheduler.book import Book
from nodectl.scheduler.decisions import Decision, End, Preempt, Resume, Start
from nodectl.scheduler.limits import Block
from nodectl.scheduler.reservation import Reservations
from nodectl.scheduler.room import Room
from nodectl.selection.answers import BUSY, PLUGIN
from nodectl.selection.records import JobRecord

_PAUSE_EVERY = 16
_MOST_FAILURES = 3
_LOOKED_AT_PER_TEST = 10


class Sweeps:
    """The looks at the line. `more_at`: when to look at the rest of a long line, 0 where the look was complete."""

    def __init__(self, book: Book, room: Room, backfill: Backfill, reservations: Reservations) -> None:
        self._book = book
        self._room = room
        self._backfill = backfill
        self._reservations = reservations
        self._policy = book.policy
        self._tested: set[int] = set()
        self.more_at = 0.0
        self._preempts = any(one.preempt for one in book.policy.qos.values())

    def run(self, now: float) -> Iterator[Decision | None]:
        """Yield the decisions possible now."""
        book = self._book
        if self._reservations.has_changed(now):
            book.freed = True
        for job in book.look_again(now):
            yield self._end(job, states.DEADLINE, reasons.PAST_DEADLINE, now)
        yield from self._resume(now)
        while True:
            yield from book.catch_up(now)
            hopeless, book.hopeless = book.hopeless, {}
            for job in hopeless.values():
                bar = (
                    book.bar(job, now) if job.job_state == states.PENDING and book.jobs.get(job.job_id) is job else None
                )
                if bar is not None and bar.reason == reasons.NEVER_SATISFIED:
                    yield self._end(job, states.CANCELLED, reasons.NEVER_SATISFIED, now)
            self._room.tidy()
            fresh, book.fresh = book.fresh, []
            self._tested.difference_update(job.job_id for job in fresh)
            whole = book.freed or (self.more_at and now >= self.more_at) or self._goes_first(fresh, now)
            if book.freed:
                self._forget()
            if whole:
                self.more_at = 0.0
                yield from self._over(book.line.in_order(now), now)
                yield from self._over(self._claimants(), now, bounded=False)
            elif fresh:
                yield from self._over(self._sorted(fresh, now), now)
            if not (book.freed or book.unlooked):
                return

    def _end(self, job: JobRecord, state: str, reason: str, now: float) -> End:
        """End a waiting job without a start, and return the decision."""
        self._book.over(job, state, now)
        self._room.forget(job)
        job.job_state, job.state_reason, job.end_time = state, reason, now
        return End(job, state, reason)

    def _forget(self) -> None:
        """Forget the findings of earlier sweeps, because room was freed."""
        self._book.freed = False
        self._tested.clear()
        self._backfill.forget()
        self._room.shadows.clear()

    def _goes_first(self, fresh: Iterable[JobRecord], now: float) -> bool:
        """True where a new job stands before the first in line."""
        book = self._book
        for job in fresh:
            shadow = self._room.first(job)
            if shadow is not None and job in book.line and book.line.goes_before(job, shadow.job, now):
                book.freed = True
                return True
        return False

    def _sorted(self, fresh: list[JobRecord], now: float) -> list[JobRecord]:
        line = self._book.line
        there = {job.job_id: job for job in fresh if job in line}.values()
        return sorted(there, key=lambda job: (-line.points(job, now), job.submit_time, job.job_id))

    def _claimants(self) -> list[JobRecord]:
        """Return the jobs with completed claims, which must not wait for the rest of a long line.

        No other job may have the room freed for them.
        """
        return [claim.job for claim in self._room.claims.values() if not self._is_pending(claim.job)]

    def _over(self, jobs: Iterable[JobRecord], now: float, *, bounded: bool = True) -> Iterator[Decision | None]:
        book, backfill = self._book, self._backfill
        most = backfill.tests + self._policy.bf_max_job_test
        limit = self._policy.bf_max_job_test * _LOOKED_AT_PER_TEST
        failures = looked_at = 0
        for job in jobs:
            if book.freed:
                return
            if job not in book.line or job.job_state != states.PENDING or job.job_id in self._tested:
                continue
            if self._is_full():
                return
            if bounded and (backfill.tests >= most or looked_at >= limit or failures >= _MOST_FAILURES):
                self.more_at = now + self._policy.bf_interval
                return
            looked_at += 1
            before = backfill.tests
            block, in_vain = yield from self._try(job, now)
            most += backfill.tests - before - in_vain  # the bound is for these: the machine bounds the starts
            if block is None:
                looked_at -= 1
            else:
                failures += block.kind == PLUGIN
                self._tested.add(job.job_id)
                yield from self._waits(job, block, now)
            if backfill.tests // _PAUSE_EVERY != before // _PAUSE_EVERY:
                yield None

    def _is_full(self) -> bool:
        """True where no job can start, so no question is needed."""
        return not self._preempts and not self._room.free_cpus()

    def _try(self, job: JobRecord, now: float) -> Generator[Decision | None, None, tuple[Block | None, int]]:
        """Start the job, or as many tasks of an array as there is room for.

        Return the reason for stopping, None where nothing is left to start, and the number of questions for that
        reason.
        """
        while True:
            before = self._backfill.tests
            found = self._backfill.start(job, now)
            if isinstance(found, Block):
                return found, self._backfill.tests - before
            yield Start(found, self._book.arrays.waiting.get(found.array_job_id))
            if found is job or job not in self._book.line:
                return None, 0

    def _waits(self, job: JobRecord, block: Block, now: float) -> Iterator[Decision | None]:
        """Handle a job still waiting: preempt jobs to make room, or keep a place as for the first in line."""
        book, room = self._book, self._room
        if block.kind == PLUGIN:
            room.forget(job)
            if job.job_state == states.PENDING and not book.pauses.until(job.job_id, now)[0]:
                book.pauses.fail(job.job_id, block.words, now)
                book.place(job, now)
            return
        claim = room.claims.get(job.job_id)
        if claim is not None and not self._is_pending(job):
            room.give_up(job)  # the claim kept other jobs off, but the job did not start
        first = False
        if block.kind == BUSY:
            if claim is None and preemption.may_preempt(self._policy, job):
                yield from self._preempt(job, now)
            first = self._stand_first(job, now)
            block = self._backfill.known_limit(job) or block  # its resources, and so its limit, may be known only now
        job.state_reason = block.reason if block.kind != BUSY else reasons.RESOURCES if first else reasons.PRIORITY
        job.state_desc = block.words

    def _is_pending(self, job: JobRecord) -> bool:
        """True while victims of the job's claim still hold resources."""
        return any(one.job_state != states.SUSPENDED for one in self._room.leaving(self._room.claims[job.job_id]))

    def _preempt(self, job: JobRecord, now: float) -> Iterator[Decision | None]:
        claim = self._backfill.preempt(job, now)
        if claim is None:
            return
        self._room.claim(claim)
        for victim in claim.victims:
            if self._room.claims.get(job.job_id) is not claim:
                return  # between two slices the job has left the line
            if victim.job_state == states.RUNNING:
                victim.preempted_by = job.job_id
                yield Preempt(victim, preemption.way(self._policy, victim), job)

    def _stand_first(self, job: JobRecord, now: float) -> bool:
        """True where the job is the first in the pool without room; a place is then kept for the job."""
        room = self._room
        shadow = room.first(job)
        if shadow is not None:
            return shadow.job is job
        foreseen = self._backfill.foresee(job, now)
        if foreseen is None:
            # A job whose nodes are down delays no job; where all are up, no job passes one that waits too long.
            up = all(node.may_start_jobs for node in self._book.selection.nodes)
            if not (up and self._book.line.is_its_turn(job)) or self._is_limited(job, now):
                return False
            foreseen = room.shadow_of(job, now, None, now)
        room.shadows[job.details.reservation] = foreseen
        return True

    def _is_limited(self, job: JobRecord, now: float) -> bool:
        """True where the user's limits keep the job from starting even with enough room."""
        return self._backfill.block(job, now) is not None or self._backfill.is_limited(job, now)

    def _resume(self, now: float) -> Iterator[Decision | None]:
        """Resume suspended jobs whose CPUs are free again, before any job gets these CPUs."""
        book = self._book
        for job in book.stopped.values():
            by = job.preempted_by
            if by and by not in book.active and by not in self._room.claims:
                book.resuming.setdefault(job.job_id, job)
        for job in list(book.resuming.values()):
            if job.job_state != states.SUSPENDED or self._is_claimed(job) or book.selection.job_resume(job, True):
                continue
            book.resumed(job, now)
            yield Resume(job)

    def _is_claimed(self, job: JobRecord) -> bool:
        held = job.job_resrcs
        return held is not None and any(
            (claim.resources.core_bitmap & held.core_bitmap).any() for claim in self._room.claims.values()
        )
