"""The connection to the history file, with errors explained.

Each error says which file failed, why, and how to fix that. Once the daemon serves, its event loop waits for another
process's lock for a moment, and only once: until a write succeeds again, statements that find the file locked fail at
once. Work that can wait is tried again meanwhile (`patiently`). Used in the event loop only.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from nodectl import messages

_START_SECONDS = 10.0  # for which a daemon that starts waits for a lock
_MOMENT_SECONDS = 0.2  # nodes that share a file lock it for milliseconds
_PATIENCE_SECONDS = 5.0
_AGAIN_SECONDS = 0.1
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_WRITES = ("BEGIN IMMEDIATE", "INSERT")  # statements that need the lock
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_Result = TypeVar("_Result")


def why_unusable(path: str, error: sqlite3.Error) -> str:
    """Return a line with the file, the fault, and the remedy if known."""
    if _is(error, _LOCKED):
        return f"{path} is locked by another process, which `fuser -v {path}` names: {_plain(error)}"
    if _is(error, _DAMAGED):
        return (
            f"{path} is damaged: {_plain(error)}; stop the service, keep what `sqlite3 {path} .recover` can read, "
            f"move {path}, {path}-wal and {path}-shm away, and start the service: it begins a new history"
        )
    return f"{path}: {_plain(error)}"


def locked_for(error: sqlite3.Error) -> float | None:
    """Return the seconds for which the file had been locked at the error, or None for a different error."""
    return getattr(error, "locked_for", 0.0) if _is(error, _LOCKED) else None


async def patiently(work: Callable[[], _Result]) -> _Result:
    """Do the work, with retries until the file has been locked for a few seconds. Raises sqlite3.Error."""
    while True:
        try:
            return work()
        except sqlite3.Error as error:
            if not is_worth_waiting(error):
                raise
        await asyncio.sleep(_AGAIN_SECONDS)


def is_worth_waiting(error: sqlite3.Error) -> bool:
    """Return True for a lock younger than a few seconds, which may soon be released."""
    seconds = locked_for(error)
    return seconds is not None and seconds < _PATIENCE_SECONDS


class HistoryConnection(sqlite3.Connection):
    """The SQLite connection to the history file, with long waits for locks until `be_quick`. Raises sqlite3.Error."""

    def __init__(self, path: str) -> None:
        super().__init__(path, isolation_level=None, timeout=_START_SECONDS)
        self._path = path
        self._is_quick = False
        self._locked_since: float | None = None
        self._damage_is_told = False

    def be_quick(self) -> None:
        """Shorten the wait for locks: from now on the event loop serves users."""
        self._is_quick = True
        self._wait_for_locks(_MOMENT_SECONDS)

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        """Execute a statement, as sqlite3 does, with errors explained."""
        try:
            rows = super().execute(*statement)
        except sqlite3.Error as error:
            self._explain(error)
            raise
        if self._locked_since is not None and statement[0].startswith(_WRITES):
            self._note_free()
        return rows

    def executemany(self, *statement: Any) -> sqlite3.Cursor:
        """Execute a statement for many rows, as sqlite3 does, with errors explained."""
        try:
            return super().executemany(*statement)
        except sqlite3.Error as error:
            self._explain(error)
            raise

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Add the file and the remedy to errors raised in the block."""
        try:
            yield
        except sqlite3.Error as error:
            self._explain(error)
            raise

    def _explain(self, error: sqlite3.Error) -> None:
        if hasattr(error, "locked_for"):  # an inner call has explained the error
            return
        words = why_unusable(self._path, error)
        seconds = 0.0
        if _is(error, _LOCKED) and self._is_quick:
            seconds = self._note_lock(words)
        if _is(error, _DAMAGED) and not self._damage_is_told:
            self._damage_is_told = True
            messages.tell("history-damaged", words)
        error.args = (words,)
        error.locked_for = seconds  # type: ignore[attr-defined]  # for `patiently`

    def _note_lock(self, words: str) -> float:
        now = time.monotonic()
        if self._locked_since is None:
            self._locked_since = now
            self._wait_for_locks(0)
            messages.tell("history-locked", f"{words}; until it is free, nothing is written, and new jobs are refused")
        return now - self._locked_since

    def _note_free(self) -> None:
        self._locked_since = None
        self._wait_for_locks(_MOMENT_SECONDS)
        messages.tell("history-free", f"{self._path} is not locked any more")

    def _wait_for_locks(self, seconds: float) -> None:
        super().execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")


def _is(error: sqlite3.Error, codes: tuple[int, ...]) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in codes


def _plain(error: sqlite3.Error) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
