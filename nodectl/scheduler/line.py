"""The jobs ready to start as soon as there is room, in order. Values only, in the daemon and in planning commands.

Nothing is sorted anew as time goes by. Each user has two lists: jobs whose age still grows, in an order that does not
depend on the time, and jobs whose age gives no more points. The lists are merged only as far as a caller reads. Before
them go the jobs whose turn has come. A turn comes to a user's oldest job when it has waited `max_wait`, but to only one
job of a user in `max_wait`, so that a user with ten thousand old jobs does not shut others out. These jobs go in the
order of their waiting.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from nodectl.model.value_class import dataclass, field
from nodectl.scheduler.fair_share import FairShare
from nodectl.scheduler.policy import Policy
from nodectl.scheduler.priority import Points, Priority
from nodectl.selection.records import JobRecord

_Entry = tuple[float, float, int, JobRecord]
"""What sorts first comes first: points as a negative number, when it was submitted, its number."""
_NOTES = 1000


@dataclass(slots=True)
class _User:
    growing: list[_Entry] = field(default_factory=list)
    grown: list[_Entry] = field(default_factory=list)
    waiting: list[tuple[float, int]] = field(default_factory=list)  # heap: eligible since; those gone stay until on top
    jobs: int = 0
    turn: int = 0  # the number of the job whose turn has come
    last_turn: float = 0.0


class Line:
    """The waiting jobs in order. `in_order` yields the jobs."""

    def __init__(self, policy: Policy, priority: Priority, fair_share: FairShare) -> None:
        self._policy = policy
        self._priority = priority
        self._fair_share = fair_share
        self._users: dict[int, _User] = {}
        self._turns: list[_Entry] = []
        self._fixed: list[_Entry] = []
        self._places: dict[int, tuple[list[_Entry], _Entry]] = {}
        self._changes: list[tuple[float, int, int]] = []  # heap: when, user, job; job 0 for the user's turn

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, job: JobRecord) -> bool:
        return job.job_id in self._places

    def add(self, job: JobRecord, now: float) -> None:
        """Put a job in line, as waiting since the job's `eligible_time`."""
        user = self._users.setdefault(job.user_id, _User())
        self._sweep(user)
        user.jobs += 1
        self._put(job, user, now)
        heapq.heappush(user.waiting, (job.eligible_time, job.job_id))
        if user.waiting[0][1] == job.job_id:
            self._plan_turn(job.user_id, user)

    def remove(self, job: JobRecord, now: float, *, started: bool = False) -> None:
        """Take a job out of the line. Where the job started, the user's next turn comes later."""
        place = self._places.pop(job.job_id, None)
        if place is None:
            return
        self._drop(place)
        user = self._users[job.user_id]
        user.jobs -= 1
        if user.turn == job.job_id:
            self.turn_taken(job, now, started=started)
        elif not user.jobs and now - user.last_turn >= self._policy.max_wait:
            del self._users[job.user_id]

    def turn_taken(self, job: JobRecord, now: float, *, started: bool = True) -> None:
        """End the job's turn, because a task of the job started or the job left."""
        user = self._users[job.user_id]
        if user.turn != job.job_id:
            return
        user.turn = 0
        if started:
            user.last_turn = now
        place = self._places.pop(job.job_id, None)
        if place is not None:
            self._drop(place)
            self._put(job, user, now)
        self._plan_turn(job.user_id, user)

    def clock_set_back(self, now: float) -> None:
        """Correct the users' last turns after the clock was set back: none lies after now."""
        for user in self._users.values():
            user.last_turn = min(user.last_turn, now)

    def in_order(self, now: float) -> Iterator[JobRecord]:
        """Yield all jobs in the order of now, without regard to jobs joining or leaving meanwhile."""
        self._catch_up(now)
        turns, fixed = list(self._turns), list(self._fixed)
        factors = self._fair_share.factors(self._users, now)
        parts: list[Iterator[_Entry]] = [iter(fixed)]
        aged = self._priority.per_second * now
        for number, user in self._users.items():
            share = self._priority.share(factors[number])
            if user.growing:
                parts.append(_raised(list(user.growing), share + aged))
            if user.grown:
                parts.append(_raised(list(user.grown), share))
        yield from (entry[3] for entry in turns)
        yield from (entry[3] for entry in heapq.merge(*parts))

    def points(self, job: JobRecord, now: float) -> float:
        """Return the job's priority now."""
        return self.all_points((job,), now)[0]

    def all_points(self, jobs: Sequence[JobRecord], now: float) -> list[float]:
        """Return the priorities of several jobs now, in line or not."""
        factors = self._fair_share.factors({*self._users, *(job.user_id for job in jobs)}, now)
        priority = self._priority
        return [
            float(job.direct_priority)
            or priority.standing(job)
            + priority.age(job.eligible_time or now, now)
            + priority.share(factors[job.user_id])
            for job in jobs
        ]

    def parts(self, jobs: Sequence[JobRecord], now: float) -> list[Points]:
        """Return the parts of the priorities of several jobs."""
        factors = self._fair_share.factors({*self._users, *(job.user_id for job in jobs)}, now)
        return [self._priority.points(job, factors[job.user_id], now) for job in jobs]

    def is_its_turn(self, job: JobRecord) -> bool:
        """True where the job goes before all normal jobs after a very long wait."""
        user = self._users.get(job.user_id)
        return user is not None and user.turn == job.job_id

    def goes_before(self, job: JobRecord, other: JobRecord, now: float) -> bool:
        """True where `job` stands in line before the second job."""
        first, second = self.is_its_turn(job), self.is_its_turn(other)
        if first and second:
            return self._places[job.job_id][1] < self._places[other.job_id][1]
        if first or second:
            return first
        return (-self.points(job, now), job.submit_time, job.job_id) < (
            -self.points(other, now), other.submit_time, other.job_id,
        )  # fmt: skip

    def _put(self, job: JobRecord, user: _User, now: float) -> None:
        priority = self._priority
        points, into = priority.standing(job), user.growing
        if job.direct_priority:
            points, into = float(job.direct_priority), self._fixed
        elif now - job.eligible_time >= self._policy.priority_max_age:
            points, into = points + priority.most_age, user.grown
        else:
            points -= priority.per_second * job.eligible_time
            heapq.heappush(self._changes, (job.eligible_time + self._policy.priority_max_age, job.user_id, job.job_id))
        self._place(job, into, points)

    def _place(self, job: JobRecord, into: list[_Entry], points: float) -> None:
        entry = (-points, job.submit_time, job.job_id, job)
        insort(into, entry)
        self._places[job.job_id] = (into, entry)

    def _sweep(self, user: _User) -> None:
        """Remove notes about gone jobs, when most notes are about gone jobs."""
        places = self._places
        if len(self._changes) > _NOTES + 4 * len(places):
            turns: dict[int, float] = {}  # each user's earliest; one that is too early is noted again
            for at, number, job_id in self._changes:
                if not job_id:
                    turns[number] = min(at, turns.get(number, at))
            ages = {change for change in self._changes if change[2] and self._is_to_come(*change)}
            self._changes = [*ages, *((at, number, 0) for number, at in turns.items() if number in self._users)]
            heapq.heapify(self._changes)
        if len(user.waiting) > _NOTES + 4 * (len(user.growing) + len(user.grown)):
            user.waiting = list({one for one in user.waiting if self._is_waiting(*one)})
            heapq.heapify(user.waiting)

    def _is_to_come(self, at: float, number: int, job_id: int) -> bool:
        place, user = self._places.get(job_id), self._users.get(number)
        if place is None or user is None or place[0] is not user.growing:
            return False
        return place[1][3].eligible_time + self._policy.priority_max_age == at

    def _is_waiting(self, eligible: float, job_id: int) -> bool:
        place = self._places.get(job_id)
        return place is not None and place[1][3].eligible_time == eligible

    @staticmethod
    def _drop(place: tuple[list[_Entry], _Entry]) -> None:
        entries, entry = place
        del entries[bisect_left(entries, entry)]

    def _catch_up(self, now: float) -> None:
        """Apply the changes due by time alone."""
        while self._changes and self._changes[0][0] <= now:
            _, number, job_id = heapq.heappop(self._changes)
            user = self._users.get(number)
            if user is None:
                continue
            if not job_id:
                self._give_turn(number, user, now)
                continue
            place = self._places.get(job_id)
            if place is not None and place[0] is user.growing:
                self._drop(place)
                self._put(place[1][3], user, now)

    def _oldest(self, user: _User) -> JobRecord | None:
        while user.waiting:
            eligible, job_id = user.waiting[0]
            if self._is_waiting(eligible, job_id):
                return self._places[job_id][1][3]
            heapq.heappop(user.waiting)
        return None

    def _plan_turn(self, number: int, user: _User) -> None:
        oldest = self._oldest(user) if self._policy.max_wait and not user.turn else None
        if oldest is not None:
            heapq.heappush(self._changes, (self._turn_time(user, oldest), number, 0))

    def _turn_time(self, user: _User, job: JobRecord) -> float:
        return max(job.eligible_time, user.last_turn) + self._policy.max_wait

    def _give_turn(self, number: int, user: _User, now: float) -> None:
        oldest = None if user.turn else self._oldest(user)
        if oldest is None:
            return
        since = self._turn_time(user, oldest)
        if since > now:
            heapq.heappush(self._changes, (since, number, 0))
            return
        user.turn = oldest.job_id
        self._drop(self._places[oldest.job_id])
        self._place(oldest, self._turns, -since)


def _raised(entries: list[_Entry], points: float) -> Iterator[_Entry]:
    return ((negative - points, submitted, job_id, job) for negative, submitted, job_id, job in entries)
