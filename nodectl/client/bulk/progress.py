"""How far it is, in one line of a terminal: what has ended, how fast, how long it may take."""

import os
import time

from nodectl.client.bulk.printing import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY = 0.5  # seconds
_CLEAR = b"\r\x1b[K"
_BAR = 30


class Progress:
    """`total`: of the commands, where it is known. Without `to`, a descriptor, nothing is shown."""

    def __init__(
        self, to: int | None, total: int | None, *, bar: bool = False, clock: "Callable[[], float]" = time.monotonic
    ) -> None:
        self._to = to
        self._total = total
        self._bar = bar
        self._clock = clock
        self._begun = self._next = clock()
        self._shown = False

    @property
    def seconds(self) -> float | None:
        """How long until it wants to be told again."""
        return None if self._to is None else max(0.0, self._next - self._clock())

    def tell(self, done: int, failed: int, running: int, passed: int = 0) -> None:
        """Where it has got to; `passed` had been done before."""
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
        """The words."""
        took = self._clock() - self._begun
        rate = done / took if took > 0 else 0.0
        done += passed
        of = "" if self._total is None else f"/{self._total}"
        words = [f"{done}{of} done", f"{failed} failed", f"{running} running", f"{rate:.3g}/s"]
        if self._total is not None and rate:
            words.append(f"{_clock_words((self._total - done) / rate)} left")
        if self._bar and self._total:
            filled = min(_BAR, _BAR * done // self._total)
            words.insert(0, f"[{'#' * filled}{'.' * (_BAR - filled)}] {100 * done // self._total}%")
        return ", ".join(words)

    def hide(self) -> None:
        """Something is printed."""
        if self._shown and self._to is not None:
            write(self._to, _CLEAR)
            self._shown = False


def _clock_words(seconds: float) -> str:
    """2:03:04, 3:04, 4 s."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}" if minutes else f"{whole} s"
