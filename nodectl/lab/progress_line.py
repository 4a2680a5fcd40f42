"""A progress line on stderr, if stderr is a terminal; otherwise nothing."""

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType

_FIRST = 2.0  # seconds: a shorter command needs no line
_EVERY = 0.5
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """A context with a progress line, which is erased at exit and before any output."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + _FIRST if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else None
        self._shown = False

    def tell(self, words: str) -> None:
        """Show the current progress, at most every half second."""
        if self._due is None or self._clock() < self._due:
            return
        self._due = self._clock() + _EVERY
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0: the terminal does not know
        except (OSError, ValueError):
            columns = 80
        sys.stderr.write(f"{_CLEAR}{words[: max(columns - 1, 1)]}")
        sys.stderr.flush()
        self._shown = True

    def hide(self) -> None:
        """Erase the line before further output."""
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._shown = False

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.hide()
