"""Taking turns: of what keeps a thread of the daemon busy, one at a time for each user.

The daemon has a handful of threads, for a name service or a kernel that may take its time. Who asks for much waits for
themselves, and leaves the other threads to others. Touched only from the event loop.
"""

import asyncio
import weakref


class Turns:
    """Those of one kind of work."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()

    def of(self, uid: int) -> asyncio.Lock:
        """`async with turns.of(uid):` is the user's turn. The caller holds it: nobody keeps it where nobody waits."""
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock
