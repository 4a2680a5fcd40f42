"""Counters of steps ended under this daemon, for `nodectl metrics`. All begin at 0 with each daemon."""

import bisect
import time
from collections import Counter
from collections.abc import Mapping

LAUNCH_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)  # seconds


class Counters:
    """The counts of ended steps, and of times from the launch call to the start of the tasks."""

    def __init__(self) -> None:
        self._since = time.time()
        self._ended: Counter[str] = Counter()
        self._cpu = [0.0, 0.0]
        self._launches = [0] * (len(LAUNCH_BUCKETS) + 1)
        self._seconds = 0.0

    def add(self, record: Mapping[str, object]) -> None:
        """Count a step's record, written by the stepd or the daemon."""
        self._ended[str(record.get("state", "UNKNOWN"))] += 1
        match record.get("cpu_seconds"):
            case [int() | float() as user, int() | float() as system]:
                self._cpu[0] += user
                self._cpu[1] += system
        match record.get("submitted"), record.get("started"):
            case int() | float() as submitted, int() | float() as started:
                seconds = max(started - submitted, 0.0)
                self._launches[bisect.bisect_left(LAUNCH_BUCKETS, seconds)] += 1
                self._seconds += seconds

    def told(self) -> Mapping[str, object]:
        """Return the counts as values.

        The launches of a bucket are those above the bound before it; the last bucket has no bound.
        """
        return {
            "since": self._since,
            "steps_ended": dict(self._ended),
            "cpu_seconds": list(self._cpu),
            "launches": {"bounds": list(LAUNCH_BUCKETS), "counts": list(self._launches), "seconds": self._seconds},
        }
