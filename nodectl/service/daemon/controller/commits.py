"""Group commit: all changes put into the store in a turn of the event loop go to the disk in a single transaction.

A job is accepted when it is on the disk. A hundred submissions in one turn wait for one fsync(2). While another process
has locked the file, they wait for that process, for a few seconds. Used only from the event loop.
"""

import asyncio
import sqlite3

from nodectl import messages
from nodectl.service.daemon.history.connection import is_worth_waiting
from nodectl.service.daemon.history.job_store import JobStore

_AGAIN = 5.0  # seconds
_SOON = 0.1


class NotWritten(Exception):
    """The changes are not on the disk; str() gives the reason in a single line."""


class Commits:
    """The commits of the node's jobs."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._waiting: list[asyncio.Future[None]] = []
        self._due = False
        self._complained = False
        self._tries_again = False

    def durable(self) -> "asyncio.Future[None]":
        """Return a future for all changes so far: done after the write, failed with NotWritten if the write fails."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        if not self._due:
            self._due = True
            loop.call_soon(self._write_for_waiters)
        return waiter

    def soon(self) -> None:
        """Have all changes so far written, without waiting."""
        self.durable().add_done_callback(lambda done: done.exception())

    def now(self) -> str:
        """Write the changes. Return "", or the error as a single line; unwritten changes are tried again later."""
        error = self._write()
        if error is not None and is_worth_waiting(error):  # the waiting calls wait a little longer
            self._write_soon()
        else:
            self._tell_waiters(error)
        return "" if error is None else _words(error)

    def _write_soon(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(_SOON, self._write_for_waiters)

    def _write_for_waiters(self) -> None:
        self._due = False
        self.now()

    def _write(self) -> sqlite3.Error | None:
        try:
            self._store.commit()
        except sqlite3.Error as error:
            if not is_worth_waiting(error):
                self._complain(_words(error))
            return error
        self._complained = False
        return None

    def _tell_waiters(self, error: sqlite3.Error | None) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                if error is not None:
                    waiter.set_exception(NotWritten(_words(error)))
                else:
                    waiter.set_result(None)

    def _complain(self, why: str) -> None:
        if not self._tries_again:
            self._tries_again = True
            asyncio.get_running_loop().call_later(_AGAIN, self._try_again)
        if not self._complained:
            messages.tell("queue-not-written", why)
        self._complained = True

    def _try_again(self) -> None:
        self._tries_again = False
        if self._store.is_behind and not self._due:
            self.now()


def _words(error: sqlite3.Error) -> str:
    return f"jobs cannot be written to the disk: {error}"
