"""Turns: of work that keeps a thread of the daemon busy, each user has one piece at a time.

The daemon has a handful of threads, for a name service or a kernel that may be slow. A user who asks for much waits for
their own calls, and leaves the other threads to other users. Used only from the event loop.
"""

import asyncio
import weakref


class Turns:
    """The turns of one kind of work."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()

    def of(self, uid: int) -> asyncio.Lock:
        """`async with turns.of(uid):` is the user's turn. It is kept only while somebody holds it or waits."""
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock
