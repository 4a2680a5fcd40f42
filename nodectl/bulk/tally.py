"""The counts of ended commands."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nodectl.bulk.commands import Command

_SHELLS = {2: 127, 13: 126, 8: 126}  # a shell's exit status for ENOENT, EACCES, ENOEXEC
KILLED, BY_TERM = -1, 15  # how GNU parallel notes a time limit


class Ending:
    """The end of a command. `status`: as of a shell; `exit_value` and `signal`: as in the log."""

    __slots__ = ("exit_value", "failed", "signal", "status", "timed_out")

    def __init__(self, event: "Mapping[str, Any]") -> None:
        status: int = event["status"]
        self.failed = status != 0
        self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self.exit_value = 0 if self.signal else os.waitstatus_to_exitcode(status)
        if "failed" in event:
            self.exit_value = _SHELLS.get(self.exit_value, self.exit_value)
        self.status = 128 + self.signal if self.signal else self.exit_value
        self.timed_out = bool(event.get("timed_out"))
        if self.timed_out:
            self.exit_value, self.signal = KILLED, BY_TERM
            self.failed = True

    def words(self) -> str:
        """Return the end in words: exit status 1, signal 9, timed out."""
        if self.timed_out:
            return "timed out"
        return f"signal {self.signal}" if self.signal else f"exit status {self.exit_value}"


class Tally:
    """The counts. `last`: the exit status of the last failed command; `first`: the first one, and its end, in words."""

    __slots__ = ("failed", "first", "last", "succeeded")

    def __init__(self) -> None:
        self.failed = self.succeeded = self.last = 0
        self.first = ""

    @property
    def done(self) -> int:
        """The number of commands ended for good."""
        return self.failed + self.succeeded

    def note(self, ending: Ending, command: "Command") -> None:
        """Count an ended command."""
        if ending.failed:
            self.first = self.first or f"number {command.number} ({ending.words()}): {command.words()}"
            self.failed += 1
            self.last = ending.status or 1
        else:
            self.succeeded += 1

    def words(self, total: int | None) -> str:
        """Return how many have ended, of `total` where that is known, how many have failed, and which was the first."""
        of = "" if total is None else f" of {total}"
        failed = f"{self.failed} failed; the first was {self.first}" if self.failed else "none failed"
        return f"{self.done}{of} command{'' if (self.done if total is None else total) == 1 else 's'} ended, {failed}"
