"""A finding of `nodectl doctor`."""

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """A finding. `level` is ok, warn (works, but not in full) or fail (steps cannot run); `advice` is for admins, or
    "".
    """

    level: str
    what: str
    detail: str
    advice: str = ""

    def __str__(self) -> str:
        """Return the finding on one line."""
        return f"{self.detail} -> {self.advice}" if self.advice else self.detail
