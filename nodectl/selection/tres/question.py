"""What select_p_job_test asks: whether a job fits now, on idle nodes, when others are gone, and when that will be."""

from __future__ import annotations

from collections.abc import Sequence

from bitarray import bitarray

from nodectl.selection.records import JobRecord
from nodectl.selection.tres.search import Placement, place
from nodectl.selection.tres.state import Held, State
from nodectl.selection.tres.use import Use
from nodectl.selection.tres.wish import Goal

_NO_LIMIT = 365 * 86_400
_FEWEST_STEPS, _MOST_STEPS = 6, 200
_MOST_WORK = 1_000_000  # nodes and jobs looked at
_FIRST_PART = 64  # of the jobs that are tried to be gone


class Question:
    """One question about one job. `candidates`: nodes that may be used; `excluded`: cores that may not."""

    def __init__(self, state: State, goal: Goal, candidates: bitarray, excluded: bitarray | None) -> None:
        self._state = state
        self._goal = goal
        self._candidates = candidates
        self._excluded = excluded if excluded is not None and excluded.any() else None
        self._masks: dict[int, int] = {}

    def ever(self) -> Placement | None:
        """On nodes that nobody uses."""
        return place(self._goal, self._candidates, self._state.idle.__getitem__, self._state.order, 0)

    def now(self) -> Placement | None:
        """On what is free."""
        return self._fit(self._state.uses)

    def preempting(self, candidates: Sequence[JobRecord]) -> tuple[Placement, list[Held]] | None:
        """In the place of as few of these jobs as needed, the first of them first; it is known that it does not fit
        beside them all.
        """
        held = self._state.held
        there = [held[job.job_id] for job in candidates if job.job_id in held]
        found = self._earliest(there, self._state.without(self._state.uses, there))
        if found is None:
            return None
        count, placement = found
        return self._spared(there[:count], placement)

    def _spared(self, gone: list[Held], placement: Placement) -> tuple[Placement, list[Held]]:
        """The second pass: each job that need not go after all stays, the ones to be preempted last first."""
        gone = _on(gone, placement)
        for held in list(reversed(gone))[: self._steps(len(gone))]:
            if held not in gone:
                continue
            fewer = [other for other in gone if other is not held]
            other = self._fit(self._state.without(self._state.uses, fewer))
            if other is not None:
                gone, placement = _on(fewer, other), other
        return placement, gone

    def later(self, now: float) -> tuple[Placement, float] | None:
        """When enough of the jobs that run have ended by their limits, and when that is."""
        running = sorted(((end_of(held.job, now), held) for held in self._state.held.values()), key=lambda one: one[0])
        found = self._earliest([held for _, held in running], self._state.idle)
        if found is None:
            return None
        count, placement = found
        return placement, running[count - 1][0]

    def _earliest(self, jobs: Sequence[Held], without_them: Sequence[Use]) -> tuple[int, Placement] | None:
        """How many of these jobs must be gone, from the first on, until it fits; it does not beside all of them.

        The more are gone the more fits: twice as many are tried until they are enough, and then the number is found by
        halving. Of very many jobs on very many nodes a number near the least one will do.
        """
        placement = self._fit(without_them) if jobs else None
        if placement is None:
            return None
        without, uses = self._state.without, self._state.uses
        # It fits beside the jobs from `high` on, and not beside those from `low` on.
        low, high, more = 0, len(jobs), max(1, len(jobs) // _FIRST_PART)
        while low + more < high:
            tried = without(uses, jobs[low : low + more])
            found = self._fit(tried)
            if found is not None:
                high, placement = low + more, found
            else:
                low, uses, more = low + more, tried, more * 2
        steps = self._steps(len(jobs))
        while high - low > 1 and steps:
            steps -= 1
            middle = (low + high) // 2
            tried = without(uses, jobs[low:middle])
            found = self._fit(tried)
            if found is None:
                low, uses = middle, tried
            else:
                high, placement = middle, found
        return high, placement

    def _steps(self, jobs: int) -> int:
        """How often such a question may be asked for one answer."""
        return max(_FEWEST_STEPS, min(_MOST_STEPS, _MOST_WORK // (len(self._state.uses) + jobs)))

    def _fit(self, uses: Sequence[Use]) -> Placement | None:
        """On what is free of these, with as few jobs as can be on a core where jobs share."""
        row = self._in_row(uses, 0)
        sharers = self._goal.wish.sharers
        if row is not None or sharers <= 1:
            return row
        low, high = 0, min(sharers - 1, max((len(use.levels) for use in uses), default=0))
        best = self._in_row(uses, high) if high else None
        while best is not None and high - low > 1:
            middle = (low + high) // 2
            found = self._in_row(uses, middle)
            if found is None:
                low = middle
            else:
                high, best = middle, found
        return best

    def _in_row(self, uses: Sequence[Use], row: int) -> Placement | None:
        if self._excluded is None:
            return place(self._goal, self._candidates, uses.__getitem__, self._state.order, row)

        # Nobody else keeps these, and `place` knows what it has refused by the offers that they keep.
        known: dict[int, Use] = {}

        def use_of(node: int) -> Use:
            use = known.get(node)
            if use is None:
                mask = self._masks.get(node)
                if mask is None:
                    mask = self._masks[node] = self._state.cores_of(self._excluded, node)  # type: ignore[arg-type]
                use = known[node] = self._state.pool.without_cores(uses[node], mask) if mask else uses[node]
            return use

        return place(self._goal, self._candidates, use_of, self._state.order, row)


def _on(jobs: Sequence[Held], placement: Placement) -> list[Held]:
    """Those of the jobs that have a node of the placement's."""
    nodes = set(placement.nodes)
    return [held for held in jobs if not nodes.isdisjoint(held.shares)]


def end_of(job: JobRecord, now: float) -> float:
    """When a job ends as the queue expects it (one that was suspended later than its limit says), or by its limit; one
    without a limit in a year, as in Slurm; one that is late, soon.
    """
    if job.end_time:
        return max(job.end_time, now + 1)
    if job.time_limit:
        return max(job.start_time + job.time_limit, now + 1)
    return max(job.start_time, now) + _NO_LIMIT
