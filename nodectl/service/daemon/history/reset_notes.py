"""Notes on running steps, which survive a reset of the machine.

The steps' files in /run serve the next daemon, but do not outlive the machine. So the history notes the record that a
running step gets if nothing more is heard of it. Notes are written in the event loop, with one fsync(2) for all steps
that are due. A step is due when it has run for a second: thousands of short ones cost nothing.
"""

import asyncio
import sqlite3
import time
from collections.abc import Collection, Container, Mapping

from nodectl import messages
from nodectl.kernel import pseudo_file
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.steps.live import LiveStep

_SECONDS = 1.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"  # random(4)
_WHY = "the machine was reset, or switched off, while the step ran"


def boot_id() -> str:
    """Return the id of the present boot of the machine."""
    return pseudo_file.read(_BOOT_ID).decode("ascii").strip()


class ResetNotes:
    """The notes on the steps in `live`."""

    def __init__(self, store: Store, live: Mapping[tuple[int, int], LiveStep]) -> None:
        self._store = store
        self._live = live
        self._boot = boot_id()
        self._noted: set[tuple[int, int]] = set()
        self._due = False
        self._complained = False

    def record_lost(self, known: Container[tuple[int, int]]) -> None:
        """After a start: record steps noted in an earlier boot as ended with NODE_FAIL, except the steps in `known`."""
        try:
            self._store.record_lost(self._boot, known)
        except sqlite3.Error as error:  # the notes stay
            messages.tell("history-not-written", f"record the steps of an earlier boot: {error}")
        if self._live:
            self.begun()

    def begun(self) -> None:
        """Schedule a note of a begun step. A short step gets none."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(_SECONDS, self._note)

    def _note(self) -> None:
        self._due = False
        self._noted &= self._live.keys()
        latest = time.time() - _SECONDS
        new = {key: live for key, live in self._live.items() if key not in self._noted}
        due = {key: live for key, live in new.items() if live.step.submitted <= latest}
        if due and self._written(due.values()):
            self._noted |= due.keys()
        if not new.keys() <= self._noted:
            self.begun()

    def _written(self, steps: Collection[LiveStep]) -> bool:
        """Write the notes. Return False for a failure to be retried, which is logged once."""
        try:
            self._store.note(self._boot, [live.death_record(_WHY) for live in steps])
        except sqlite3.Error as error:
            if not self._complained:
                messages.tell("history-not-written", f"note running steps in the history: {error}")
            self._complained = True
            return False
        self._complained = False
        return True
