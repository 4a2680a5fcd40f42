"""The progress line of a terminal: ended commands, rate, time left."""

import os
import time
from typing import TYPE_CHECKING

from nodectl.bulk.printing import write

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY = 0.5  # seconds
_CLEAR = b"\r\x1b[K"
_BAR = 30


class Progress:
    """The progress line. `total`: the number of commands, once known. Shows nothing without the descriptor `to`."""

    def __init__(
        self, to: int | None, total: int | None, *, bar: bool = False, clock: "Callable[[], float]" = time.monotonic
    ) -> None:
        self._to = to
        self.total = total
        self._bar = bar
        self._clock = clock
        self._begun = self._next = clock()
        self._shown = False

    @property
    def seconds(self) -> float | None:
        """The seconds until the next update, None for no updates."""
        return None if self._to is None else max(0.0, self._next - self._clock())

    def tell(self, done: int, failed: int, running: int, passed: int = 0) -> None:
        """Show the counts, unless shown recently; `passed` counts the commands done in an earlier run."""
        if self._to is None or self._clock() < self._next:
            return
        self._next = self._clock() + _EVERY
        line = self.line(done, failed, running, passed)
        try:
            columns = os.get_terminal_size(self._to).columns or 80  # 0: it does not know
        except OSError:
            columns = 80
        write(self._to, _CLEAR + line[: max(columns - 1, 1)].encode())
        self._shown = True

    def line(self, done: int, failed: int, running: int, passed: int = 0) -> str:
        """Return the text of the line."""
        took = self._clock() - self._begun
        rate = done / took if took > 0 else 0.0
        done += passed
        of = "" if self.total is None else f"/{self.total}"
        words = [f"{done}{of} done", f"{failed} failed", f"{running} running", f"{rate:.3g}/s"]
        if self.total is not None and rate:
            words.append(f"{_clock_words((self.total - done) / rate)} left")
        if self._bar and self.total:
            filled = min(_BAR, _BAR * done // self.total)
            words.insert(0, f"[{'#' * filled}{'.' * (_BAR - filled)}] {100 * done // self.total}%")
        return ", ".join(words)

    def hide(self) -> None:
        """Clear the line, before printing."""
        if self._shown and self._to is not None:
            write(self._to, _CLEAR)
            self._shown = False


def _clock_words(seconds: float) -> str:
    """Return the time as 2:03:04, 3:04, or 4 s."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}" if minutes else f"{whole} s"
