"""The wall clock, compared with the time since the boot, so that the daemon notices when the wall clock is set.

ntpd, chronyd and people set the clock of a machine by hours, above all soon after the boot. The queue compares both
clocks whenever it needs the time.
"""

import time

_LEAST = 1.0  # seconds


class WallClock:
    """The wall clock of the queue."""

    def __init__(self) -> None:
        self._ahead = _ahead()

    def set_by(self) -> float:
        """Return by how many seconds the clock was set since the last question, 0.0 for less than a second."""
        ahead = _ahead()
        by = ahead - self._ahead
        if abs(by) < _LEAST:
            return 0.0
        self._ahead = ahead
        return by


def _ahead() -> float:
    """Return the difference to the time since the boot, which NTP's small corrections do not change."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
