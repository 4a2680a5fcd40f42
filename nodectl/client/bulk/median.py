"""The median of run times, near enough, in memory that does not grow with their number."""

import math

_STEPS = 100  # of a factor of e: a value is told within one percent
_SHORTEST = 1e-4


class Median:
    """Counts values by their logarithm."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0

    def add(self, value: float) -> None:
        """One more."""
        bucket = round(math.log(max(value, _SHORTEST)) * _STEPS)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1

    def value(self) -> float:
        """The median; there is at least one value."""
        below = 0
        for bucket in sorted(self._buckets):
            below += self._buckets[bucket]
            if 2 * below >= self.count:
                break
        return math.exp(bucket / _STEPS)
