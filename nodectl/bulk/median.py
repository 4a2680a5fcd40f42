"""The approximate median of run times, in memory independent of the number of values."""

import math

_STEPS = 100  # of a factor of e: a value is told within one percent
_SHORTEST = 1e-4


class Median:
    """A counter of values by logarithm."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0

    def add(self, value: float) -> None:
        """Add a value."""
        bucket = round(math.log(max(value, _SHORTEST)) * _STEPS)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1

    def value(self) -> float:
        """Return the median of at least one value."""
        below = 0
        for bucket in sorted(self._buckets):
            below += self._buckets[bucket]
            if 2 * below >= self.count:
                break
        return math.exp(bucket / _STEPS)
