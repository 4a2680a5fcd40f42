"""Group commit: all that the turn of the event loop has put into the store goes to the disk together.

A job is accepted when it is on the disk. A hundred submissions in one turn wait for one fsync(2). Used only from the
event loop.
"""

import asyncio
import sqlite3

from nodectl import messages
from nodectl.daemon.history.job_store import JobStore

_AGAIN = 5.0  # seconds


class NotWritten(Exception):
    """What was put is not on the disk; str() says why, in one line."""


class Commits:
    """The commits of one node's jobs."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._waiting: list[asyncio.Future[None]] = []
        self._due = False
        self._complained = False

    def durable(self) -> "asyncio.Future[None]":
        """Is done when everything that has been put is on the disk; fails with NotWritten where that cannot be."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        if not self._due:
            self._due = True
            loop.call_soon(self.now)
        return waiter

    def soon(self) -> None:
        """What has been put is written; nobody waits for it."""
        self.durable().add_done_callback(lambda done: done.exception())

    def now(self) -> str:
        """Writes. Returns why it cannot, one line, "" where it could. What was not written is tried again later."""
        self._due = False
        waiting, self._waiting = self._waiting, []
        why = ""
        try:
            self._store.commit()
        except sqlite3.Error as error:
            why = f"jobs cannot be written to the disk: {error}"
            self._complain(why)
        else:
            self._complained = False
        for waiter in waiting:
            if not waiter.done():
                if why:
                    waiter.set_exception(NotWritten(why))
                else:
                    waiter.set_result(None)
        return why

    def _complain(self, why: str) -> None:
        asyncio.get_running_loop().call_later(_AGAIN, self._try_again)
        if not self._complained:
            messages.tell("queue-not-written", why)
        self._complained = True

    def _try_again(self) -> None:
        if self._store.is_behind and not self._due:
            self.now()
