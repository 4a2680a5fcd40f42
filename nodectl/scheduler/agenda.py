"""What is to be looked at when time has come, and pauses after failures. In the daemon and in commands that plan."""

from __future__ import annotations

import heapq

from nodectl.model.value_class import dataclass

_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 600.0
_NOTES = 1000


class Agenda:
    """Numbers of jobs by time. A job may stand here for several times; who looks finds out what is still so."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._most = _NOTES  # when notes that are there twice are looked for

    def note(self, at: float, job_id: int) -> None:
        """Look at this job then."""
        heapq.heappush(self._heap, (at, job_id))
        if len(self._heap) > self._most:
            self._heap = sorted(set(self._heap))
            self._most = max(_NOTES, 2 * len(self._heap))

    def due(self, now: float) -> list[int]:
        """Whom to look at; each once."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[1])
        return list(dict.fromkeys(found))

    def next_time(self) -> float | None:
        """When somebody is to be looked at."""
        return self._heap[0][0] if self._heap else None


@dataclass(slots=True)
class _Pause:
    until: float
    count: int
    words: str


class Pauses:
    """Jobs that failed to start, or to make room, each time for longer."""

    def __init__(self) -> None:
        self._of: dict[int, _Pause] = {}

    def __contains__(self, job_id: int) -> bool:
        """Whether it has failed, and not been forgotten since."""
        return job_id in self._of

    def fail(self, job_id: int, words: str, now: float) -> float:
        """The job waits: until when."""
        pause = self._of.setdefault(job_id, _Pause(now, 0, words))
        length = min(_FIRST_PAUSE * 2.0 ** min(pause.count, 20), _LONGEST_PAUSE)
        pause.until, pause.count, pause.words = now + length, pause.count + 1, words
        return pause.until

    def until(self, job_id: int, now: float) -> tuple[float, str]:
        """Until when a job waits, and why; the past, and "", for one that does not."""
        pause = self._of.get(job_id)
        if pause is None or not now < pause.until <= now + _LONGEST_PAUSE:  # later than that: the clock was set back
            return 0.0, ""
        return pause.until, pause.words

    def forget(self, job_id: int) -> None:
        """It did what it was to do, or is gone."""
        self._of.pop(job_id, None)
