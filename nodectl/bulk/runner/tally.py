"""The tally of a bulk step's ended commands: counts, the first failures, the slowest commands.

Its size does not depend on the number of commands; as JSON it is below `record.ROOM_OF_COMMANDS`. Pure.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FAILURES = 10
_SLOWEST = 5
_LONGEST = 120  # characters of a command, of a reason
_COUNTS = ("succeeded", "failed", "not_executed", "timed_out", "out_of_memory", "signalled", "withdrawn")


class Tally:
    """The counts of a bulk step's commands. `begun` counts every started task."""

    __slots__ = ("_counts", "_failures", "_slowest", "begun")

    def __init__(self) -> None:
        self.begun = 0
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._failures: list[Mapping[str, object]] = []
        self._slowest: list[dict[str, object]] = []

    def withdrawn(self, number: int) -> None:
        """Count commands dropped before the start."""
        self._counts["withdrawn"] += number

    def ended(self, told: "Mapping[str, object]", argv: "Sequence[str]") -> None:
        """Count an ended command, with the facts sent to the client."""
        status, seconds = int(told["status"]), float(told["seconds"])  # type: ignore[call-overload, arg-type]
        counts = self._counts
        counts["failed" if status else "succeeded"] += 1
        if status:
            counts["not_executed"] += "failed" in told
            counts["timed_out"] += "timed_out" in told
            counts["out_of_memory"] += "out_of_memory" in told
            counts["signalled"] += os.WIFSIGNALED(status)
            if len(self._failures) < _FAILURES:
                why = _beginning(str(told.get("failed", "")))
                row = {"seq": told["seq"], "status": status, "command": _command(argv), "why": why}
                self._failures.append(row)
        slowest = self._slowest
        if len(slowest) < _SLOWEST or seconds > float(slowest[-1]["seconds"]):  # type: ignore[arg-type]
            slowest.append({"seq": told["seq"], "seconds": seconds, "status": status, "command": _command(argv)})
            slowest.sort(key=lambda one: -float(one["seconds"]))  # type: ignore[arg-type]
            del slowest[_SLOWEST:]

    def ends(self) -> tuple[int, int]:
        """Return how many commands have ended, and how many of them have failed."""
        failed = self._counts["failed"]
        return failed + self._counts["succeeded"], failed

    def figures(self) -> "dict[str, object]":
        """Return the commands' part of the step's record."""
        return {"commands": self.begun, **self._counts, "failures": self._failures, "slowest": self._slowest}

    def reason(self) -> str:
        """Return the reason why the step has failed, "" if no command has failed."""
        all_ended, failed = self.ends()
        return f"{failed} of {all_ended} commands failed" if failed else ""


def _command(argv: "Sequence[str]") -> str:
    """Return the beginning of a command, as kept in the tally; a command may have a megabyte."""
    text = ""
    for word in argv:
        text += f" {word[:_LONGEST]}" if text else word[:_LONGEST]
        if len(text) > _LONGEST:
            break
    return _beginning(text)


def _beginning(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
