"""Returns free memory to the kernel after many steps, when no step has ended for two seconds.

The heap keeps freed memory for the next request: megabytes after a thousand steps. SQLite keeps pages of the history,
up to half a megabyte, which the kernel has in memory anyway. Runs in the event loop, a
millisecond or two.
"""

import asyncio
import gc
from collections.abc import Callable

from nodectl.kernel import _kernel

_SECONDS = 2.0


class SpareMemory:
    """The daemon's free memory. `release` frees caches."""

    __slots__ = ("_changes", "_is_due", "_release")

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._changes = 0
        self._is_due = False

    def used(self) -> None:
        """Note ended steps, which have freed memory."""
        self._changes += 1
        if not self._is_due:
            self._look_later()

    def _look_later(self) -> None:
        self._is_due = True
        asyncio.get_running_loop().call_later(_SECONDS, self._look, self._changes)

    def _look(self, changes: int) -> None:
        if changes != self._changes:
            self._look_later()
            return
        self._is_due = False
        self._release()
        gc.collect()
        _kernel.trim()
