"""Steps that have ended and are not in the history yet. They are written together; then their files are removed.

While the history cannot be written, for instance on a full disk, they wait here, and are found here. Used in the event
loop only.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator, Mapping

from nodectl import messages
from nodectl.daemon.history.store import Ended, Store
from nodectl.daemon.steps.live import LiveStep
from nodectl.daemon.steps.spare_memory import SpareMemory
from nodectl.model.step_number import BATCH

_SECONDS = 0.2
_SECONDS_AGAIN = 5.0


class Batch:
    """The waiting steps of one node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._steps: dict[tuple[int, int], tuple[Ended, LiveStep]] = {}
        self._failed: dict[tuple[int, int], LiveStep] = {}  # whose files could not be removed
        self._due = False
        self._spare = SpareMemory()

    def add(self, live: LiveStep, record: Mapping[str, object]) -> None:
        """Adds a step with its record; it is written soon."""
        self._steps[live.key] = Ended(record, live.files.trace()), live
        self._flush_in(_SECONDS)

    def flush(self) -> None:
        """Writes them now. What cannot be written is tried again later, and the log says so."""
        if not self._steps:
            return
        batch = list(self._steps.values())
        try:
            self._store.add([ended for ended, _ in batch])
        except sqlite3.Error as error:
            messages.tell("history-not-written", f"write {len(batch)} ended steps into the history: {error}")
            for ended, live in batch:
                _keep(live, ended.record)
            self._flush_in(_SECONDS_AGAIN)
            return
        self._steps.clear()
        for _, live in batch:
            self._remove_files(live)

    def _remove_files(self, live: LiveStep) -> None:
        """What cannot be removed is tried again later: the next daemon would take the step for one that runs."""
        try:
            live.files.remove(may_be_plain=not live.step.stack)
        except OSError as error:
            told = f"step {live.step}: remove its files: {error}"
            messages.tell("files-stay", told, job=live.key[0], step=str(live.step))
            if live.key not in self._failed:
                self._failed[live.key] = live
                asyncio.get_running_loop().call_later(_SECONDS_AGAIN, self._remove_again, live)
        else:
            self._failed.pop(live.key, None)

    def _remove_again(self, live: LiveStep) -> None:
        if self._failed.get(live.key) is live:  # else they are removed, and a later run may have some of these names
            del self._failed[live.key]
            self._remove_files(live)

    def make_way(self, job: int, step: int) -> str:
        """A step of this number is to begin: what an earlier run of a requeued job left, under the same names, goes
        into the history, and from the disk. Returns why it cannot yet, one line, "" where nothing is left.
        """
        key = job, step
        if key in self._steps:
            self.flush()
        if key in self._steps:
            return "the end of its earlier run cannot be written into the history"
        if key in self._failed:
            self._remove_files(self._failed[key])
        return "the files of its earlier run cannot be removed" if key in self._failed else ""

    def waiting(self) -> Iterator[LiveStep]:
        """The steps that are not in the history yet."""
        return (live for _, live in self._steps.values())

    def record(self, job: int, step: int) -> Mapping[str, object] | None:
        """A step's record, from here or from the history; None for one that neither knows."""
        waiting = self._steps.get((job, step))
        return self._store.record(job, step) if waiting is None else waiting[0].record

    def trace(self, job: int, step: int) -> bytes:
        """Likewise its trace."""
        waiting = self._steps.get((job, step))
        return (self._store.trace(job, step) or b"") if waiting is None else waiting[0].trace

    def last_step(self, job: int, restart: int) -> int:
        """The highest number of a step that has ended of this run of a job, -1 where there is none; named ones have no
        number.
        """
        ended = (live.step for _, live in self._steps.values() if live.step.job_id == job)
        numbers = (step.step_id for step in ended if step.restart == restart and step.step_id < BATCH)
        return max(self._store.last_step(job, restart), *numbers, -1)

    def _flush_in(self, seconds: float) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(seconds, self._flush_due)

    def _flush_due(self) -> None:
        self._due = False
        self.flush()
        self._spare.used()


def _keep(live: LiveStep, record: Mapping[str, object]) -> None:
    """Writes the record for the next daemon, if there is room: so far only this one knows it."""
    if not live.files.has_record():
        with contextlib.suppress(OSError):
            live.files.write_record(record)
