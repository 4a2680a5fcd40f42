"""Steps that have ended and are not in the history yet: they are written together, and only then do their files go.

Where the history cannot be written, on a full disk, they wait, and are known from here. Used in the event loop only.
"""

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import Iterator, Mapping

from nodectl.daemon.history.store import Ended, Store
from nodectl.daemon.steps.live import LiveStep

_SECONDS = 0.2
_SECONDS_AGAIN = 5.0


class Batch:
    """Those of one node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._steps: dict[tuple[int, int], tuple[Ended, LiveStep]] = {}
        self._due = False

    def add(self, live: LiveStep, record: Mapping[str, object]) -> None:
        """This is what came of a step."""
        self._steps[live.key] = Ended(record, live.files.trace()), live
        self._flush_in(_SECONDS)

    def flush(self) -> None:
        """Writes them now; what cannot be written later, which the log tells."""
        if not self._steps:
            return
        batch = list(self._steps.values())
        try:
            self._store.add([ended for ended, _ in batch])
        except sqlite3.Error as error:
            print(f"nodectl daemon: write {len(batch)} ended steps into the history: {error}", file=sys.stderr)
            for ended, live in batch:
                _keep(live, ended.record)
            self._flush_in(_SECONDS_AGAIN)
            return
        self._steps.clear()
        for _, live in batch:
            live.files.remove()

    def waiting(self) -> Iterator[LiveStep]:
        """Those that the history has not taken yet."""
        return (live for _, live in self._steps.values())

    def record(self, job: int, step: int) -> Mapping[str, object] | None:
        """A step's record, from here or from the history; None for one that neither knows."""
        waiting = self._steps.get((job, step))
        return self._store.record(job, step) if waiting is None else waiting[0].record

    def trace(self, job: int, step: int) -> bytes:
        """Likewise its trace."""
        waiting = self._steps.get((job, step))
        return (self._store.trace(job, step) or b"") if waiting is None else waiting[0].trace

    def last_step(self, job: int) -> int:
        """The highest number of a job's steps that have ended, 0 where there is none."""
        waiting = (step for of_job, step in self._steps if of_job == job)
        return max(self._store.last_step(job), *waiting, 0)

    def _flush_in(self, seconds: float) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(seconds, self._flush_due)

    def _flush_due(self) -> None:
        self._due = False
        self.flush()


def _keep(live: LiveStep, record: Mapping[str, object]) -> None:
    """What only this daemon knows the next one should find, if there is room for it."""
    if not live.files.has_record():
        with contextlib.suppress(OSError):
            live.files.write_record(record)
