"""Ended steps waiting for the history, written in batches. Writing a batch removes the files of the steps.

While the history cannot be written, for instance on a full disk, the steps wait here and can be queried here. Used in
the event loop only.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator, Mapping

from nodectl import messages
from nodectl.model.step_number import BATCH
from nodectl.service.daemon.history.store import Ended, Store
from nodectl.service.daemon.steps.live import LiveStep
from nodectl.service.daemon.steps.spare_memory import SpareMemory

_SECONDS = 0.2
_SECONDS_AGAIN = 5.0


class Batch:
    """The waiting steps of a node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._steps: dict[tuple[int, int], tuple[Ended, LiveStep]] = {}
        self._failed: dict[tuple[int, int], LiveStep] = {}  # steps with files that could not be removed
        self._due = False
        self._spare = SpareMemory(store.forget_pages)

    def add(self, live: LiveStep, record: Mapping[str, object]) -> None:
        """Add a step with the record, to be written soon."""
        self._steps[live.key] = Ended(record, live.files.trace()), live
        self._flush_in(_SECONDS)

    def flush(self) -> None:
        """Write all waiting steps now. On failure log the error and try again later."""
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
        """Remove the step's files; on failure try again later, as the next daemon would take the step for running."""
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
        if self._failed.get(live.key) is live:  # else the files are gone, and a later run may use their names
            del self._failed[live.key]
            self._remove_files(live)

    def make_way(self, job: int, step: int) -> str:
        """Move the step's earlier run, of a requeued job, from the disk into the history, to free the file names.

        Called before the step begins. Return "", or why the step cannot begin yet, one line.
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
        """Yield the steps not yet in the history."""
        return (live for _, live in self._steps.values())

    def record(self, job: int, step: int) -> Mapping[str, object] | None:
        """Return a step's record, from here or from the history, or None for an unknown step."""
        waiting = self._steps.get((job, step))
        return self._store.record(job, step) if waiting is None else waiting[0].record

    def trace(self, job: int, step: int) -> bytes:
        """Return a step's trace, from here or from the history, b"" for an unknown step."""
        waiting = self._steps.get((job, step))
        return (self._store.trace(job, step) or b"") if waiting is None else waiting[0].trace

    def last_step(self, job: int, restart: int) -> int:
        """Return the highest number of an ended step in this run of a job, or -1 for none.

        Named steps have no number.
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
    """Write the record to the step's file for the next daemon, if the disk has room and no record is there."""
    if not live.files.has_record():
        with contextlib.suppress(OSError):
            live.files.write_record(record)
