"""Disk writes in a thread beside the loop, because syncfs(2) may wait for other processes' writes.

All signals go to the loop. Nothing is forked until the work is over.
"""

import _thread
import signal
import time
from typing import TYPE_CHECKING

from nodectl.client.signals import FORWARDED

if TYPE_CHECKING:
    from collections.abc import Callable


class Beside:
    """Work in a thread, begun at once. `seconds` is the time the work took."""

    __slots__ = ("_error", "_runs", "_work", "seconds")

    def __init__(self, work: "Callable[[], None]") -> None:
        self._work = work
        self._error: BaseException | None = None
        self._runs = _thread.allocate_lock()
        self._runs.acquire()
        self.seconds = 0.0
        before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            self._run()  # the user may have no more threads
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._work()
        except BaseException as error:  # the top of a thread
            self._error = error
        finally:
            self.seconds = time.monotonic() - began
            self._runs.release()

    def is_over(self) -> bool:
        """Return True if `end` would not wait."""
        return not self._runs.locked()

    def end(self) -> None:
        """Wait for the work. Raise the work's exception."""
        with self._runs:
            if self._error is not None:
                raise self._error
