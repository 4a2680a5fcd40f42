"""The counts of ended commands."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SHELLS = {2: 127, 13: 126, 8: 126}  # a shell's exit status for ENOENT, EACCES, ENOEXEC
KILLED, BY_TERM = -1, 15  # how GNU parallel notes a time limit


class Ending:
    """The end of a command. `status`: as of a shell; `exit_value` and `signal`: as in the log."""

    __slots__ = ("exit_value", "failed", "signal", "status")

    def __init__(self, event: "Mapping[str, Any]") -> None:
        status: int = event["status"]
        self.failed = status != 0
        self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self.exit_value = 0 if self.signal else os.waitstatus_to_exitcode(status)
        if "failed" in event:
            self.exit_value = _SHELLS.get(self.exit_value, self.exit_value)
        self.status = 128 + self.signal if self.signal else self.exit_value
        if event.get("timed_out"):
            self.exit_value, self.signal = KILLED, BY_TERM
            self.failed = True


class Tally:
    """The counts. `last`: the exit status of the last failed command."""

    __slots__ = ("failed", "last", "succeeded")

    def __init__(self) -> None:
        self.failed = self.succeeded = self.last = 0

    @property
    def done(self) -> int:
        """The number of commands ended for good."""
        return self.failed + self.succeeded

    def note(self, ending: Ending) -> None:
        """Count an ended command."""
        if ending.failed:
            self.failed += 1
            self.last = ending.status or 1
        else:
            self.succeeded += 1
