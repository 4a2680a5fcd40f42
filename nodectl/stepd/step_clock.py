"""The times of a step: the wall clock's at its start, and from there on those of a clock that nobody sets."""

import time


class StepClock:
    """`started`: seconds since the epoch, by the wall clock as it was then."""

    __slots__ = ("_began", "started")

    def __init__(self) -> None:
        self.started = time.time()
        self._began = time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        """Seconds since the epoch, as if the wall clock had not been set since the start."""
        return self.started + time.clock_gettime(time.CLOCK_BOOTTIME) - self._began

    def set_forward(self) -> float:
        """By how many seconds the wall clock was set forward since the start; less than 0 for back."""
        return time.time() - self.now()
