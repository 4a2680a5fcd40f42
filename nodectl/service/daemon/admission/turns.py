"""Turns for work in the daemon's threads: each user has a single piece of work at a time.

The daemon has a handful of threads, for a name service or a kernel that may be slow. A user who asks for much waits for
their own calls, and leaves the other threads to other users. Used only from the event loop.
"""

import asyncio
import weakref


class Turns:
    """The turns for a kind of work."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()

    def of(self, uid: int) -> asyncio.Lock:
        """Return the lock of a user's turn, for `async with`. Kept only while held or awaited."""
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock
