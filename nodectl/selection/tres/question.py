"""The questions of select_p_job_test: does a job fit now, on idle nodes, after the end of other jobs, and when?"""

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
    """A question about a job. `candidates`: usable nodes. `excluded`: unusable cores."""

    def __init__(self, state: State, goal: Goal, candidates: bitarray, excluded: bitarray | None) -> None:
        self._state = state
        self._goal = goal
        self._candidates = candidates
        self._excluded = excluded if excluded is not None and excluded.any() else None
        self._masks: dict[int, int] = {}

    def ever(self) -> Placement | None:
        """Place the job on idle nodes."""
        return place(self._goal, self._candidates, self._state.idle.__getitem__, self._state.order, 0)

    def now(self) -> Placement | None:
        """Place the job on the free resources."""
        return self._fit(self._state.uses)

    def preempting(self, candidates: Sequence[JobRecord]) -> tuple[Placement, list[Held]] | None:
        """Place the job by preempting as few of the candidates as needed, the first candidates first.

        The caller knows that the job does not fit beside them all.
        """
        held = self._state.held
        there = [held[job.job_id] for job in candidates if job.job_id in held]
        found = self._earliest(there, self._state.without(self._state.uses, there))
        if found is None:
            return None
        count, placement = found
        return self._spared(there[:count], placement)

    def _spared(self, gone: list[Held], placement: Placement) -> tuple[Placement, list[Held]]:
        """Spare each job not needed for the placement, the last candidates first: the second pass."""
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
        """Return the placement after the end of enough running jobs by time limit, and the time of this end."""
        running = sorted(((end_of(held.job, now), held) for held in self._state.held.values()), key=lambda one: one[0])
        found = self._earliest([held for _, held in running], self._state.idle)
        if found is None:
            return None
        count, placement = found
        return placement, running[count - 1][0]

    def _earliest(self, jobs: Sequence[Held], without_them: Sequence[Use]) -> tuple[int, Placement] | None:
        """Return how many jobs, from the first on, must be gone until the job fits, and the placement.

        The job does not fit beside all of them. The more are gone the more fits: twice as many are tried until they are
        enough, and then the number is found by halving. Of very many jobs on very many nodes a number near the least
        one will do.
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
        """Return how often the question may be tried for an answer."""
        return max(_FEWEST_STEPS, min(_MOST_STEPS, _MOST_WORK // (len(self._state.uses) + jobs)))

    def _fit(self, uses: Sequence[Use]) -> Placement | None:
        """Place the job on free resources, with as few jobs as possible on a core where jobs share."""
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
        if self._excluded is None and not self._state.table.devices_away:
            return place(self._goal, self._candidates, uses.__getitem__, self._state.order, row)

        # Only this dict keeps these uses alive, and `place` knows refused offers by identity.
        known: dict[int, Use] = {}

        def use_of(node: int) -> Use:
            use = known.get(node)
            if use is None:
                use = known[node] = self._without_excluded(node, uses[node])
            return use

        return place(self._goal, self._candidates, use_of, self._state.order, row)

    def _without_excluded(self, node: int, use: Use) -> Use:
        """Return the use of a node with its excluded cores, and its devices that are used outside of jobs, taken."""
        pool, mask = self._state.pool, self._masks.get(node)
        if mask is None:
            mask = 0 if self._excluded is None else self._state.cores_of(self._excluded, node)
            self._masks[node] = mask
        use = pool.without_cores(use, mask) if mask else use
        away = self._state.table.devices_away.get(node)
        return pool.without_devices(use, use.shape.bits_of(away)) if away else use


def _on(jobs: Sequence[Held], placement: Placement) -> list[Held]:
    """Return the jobs on a node of the placement."""
    nodes = set(placement.nodes)
    return [held for held in jobs if not nodes.isdisjoint(held.shares)]


def end_of(job: JobRecord, now: float) -> float:
    """Return the expected end of a job, by the queue's expectation or by the time limit.

    The queue's end is later than the limit for a job that was suspended. A job without a limit ends in a year, as in
    Slurm; a late job ends soon.
    """
    if job.end_time:
        return max(job.end_time, now + 1)
    if job.time_limit:
        return max(job.start_time + job.time_limit, now + 1)
    return max(job.start_time, now) + _NO_LIMIT
