"""Times at which the queue must look at a job again; pauses after failures. In the daemon and in planning commands."""

from __future__ import annotations

import heapq

from nodectl.model.value_class import dataclass

_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 600.0
_NOTES = 1000


class Agenda:
    """Job numbers ordered by time.

    A job may stand here for several times; the caller of `due` checks which of them still matter.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._most = _NOTES  # when notes that are there twice are looked for

    def note(self, at: float, job_id: int) -> None:
        """Remember to look at the job at time `at`."""
        heapq.heappush(self._heap, (at, job_id))
        if len(self._heap) > self._most:
            self._heap = sorted(set(self._heap))
            self._most = max(_NOTES, 2 * len(self._heap))

    def due(self, now: float) -> list[int]:
        """Remove and return the jobs due by now, each job once."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[1])
        return list(dict.fromkeys(found))

    def next_time(self) -> float | None:
        """Return the earliest time at which a job is due, or None."""
        return self._heap[0][0] if self._heap else None


@dataclass(slots=True)
class _Pause:
    until: float
    count: int
    words: str


class Pauses:
    """Jobs with failed attempts to start or to make room; each further failure makes the pause longer."""

    def __init__(self) -> None:
        self._of: dict[int, _Pause] = {}

    def __contains__(self, job_id: int) -> bool:
        """True where the job has failed since the last `forget`."""
        return job_id in self._of

    def fail(self, job_id: int, words: str, now: float) -> float:
        """Start the job's next pause and return the end of the pause."""
        pause = self._of.setdefault(job_id, _Pause(now, 0, words))
        length = min(_FIRST_PAUSE * 2.0 ** min(pause.count, 20), _LONGEST_PAUSE)
        pause.until, pause.count, pause.words = now + length, pause.count + 1, words
        return pause.until

    def until(self, job_id: int, now: float) -> tuple[float, str]:
        """Return the end of the job's pause and the reason; (0.0, "") for a job without a pause."""
        pause = self._of.get(job_id)
        if pause is None or not now < pause.until <= now + _LONGEST_PAUSE:  # later than that: the clock was set back
            return 0.0, ""
        return pause.until, pause.words

    def forget(self, job_id: int) -> None:
        """Forget the job's failures: the job succeeded, or has left the queue."""
        self._of.pop(job_id, None)
