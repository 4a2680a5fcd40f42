"""--halt: the end of a run before all commands have run, and the exit status."""

from nodectl.model.number import whole

_OLD = {
    "0": "never", "1": "soon,fail=1", "2": "now,fail=1", "-1": "soon,success=1", "-2": "now,success=1",
}  # fmt: skip
_REASONS = ("fail", "success", "done")
_MOST = 10**12
_MOST_TOLD = 101  # as exit status: more than a hundred


class Halt:
    """The condition of --halt.

    `at_once`: end the running commands; else just begin no more. The condition is met by `count` ends of the kind
    `reason`, or by that percentage of all commands with `percent`. An empty `reason` means never.
    """

    __slots__ = ("at_once", "count", "percent", "reason")

    def __init__(self, reason: str = "", count: int = 0, *, percent: bool = False, at_once: bool = False) -> None:
        self.reason = reason
        self.count = count
        self.percent = percent
        self.at_once = at_once

    def left(self, failed: int, succeeded: int, total: int) -> int | None:
        """Return the number of ends left until the condition is met, None for never.

        `total`: the number of all commands, used only with `percent`.
        """
        if not self.reason:
            return None
        done = {"fail": failed, "success": succeeded, "done": failed + succeeded}[self.reason]
        return max(0, (-(-self.count * total // 100) if self.percent else self.count) - done)

    def words(self, failed: int, succeeded: int) -> str:
        """Return the count of the ends, in words."""
        if self.reason == "fail":
            return f"{failed} failed"
        return f"{succeeded} succeeded" if self.reason == "success" else f"{failed + succeeded} ended"

    def exit_status(self, failed: int, total: int, last: int, *, reached: bool) -> int:
        """Return the exit status of nodectl. `last`: the status of the last failed command."""
        if self.reason == "success" and reached:
            return 0
        if self.reason == "fail" and reached and self.count == 1 and not self.percent:
            return last
        if self.percent and self.reason in ("fail", "success"):
            return min(100, round(100 * failed / max(total, 1)))
        return min(failed, _MOST_TOLD)


def halt(text: str) -> Halt:
    """Parse never, or WHEN,WHY=N or N%: now|soon,fail|success|done=N. Raises ValueError."""
    said = _OLD.get(text, text)
    if said == "never":
        return Halt()
    if said.endswith("%") and "," not in said:
        said = f"soon,fail={said}"
    when, comma, rest = said.partition(",")
    why, equals, number = rest.partition("=")
    count = whole(number.removesuffix("%"), _MOST)
    if not comma or when not in ("now", "soon") or why not in _REASONS or not equals or not count:
        raise ValueError(f"Invalid value {text[:40]!r}, never or now|soon,fail|success|done=N or N% is allowed")
    return Halt(why, count, percent=number.endswith("%"), at_once=when == "now")
