"""One finding of `nodectl doctor`."""

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """`level` is ok, warn (works, but not in full) or fail (steps cannot run); `advice` is for admins, or ""."""

    level: str
    what: str
    detail: str
    advice: str = ""

    def __str__(self) -> str:
        """The finding on one line."""
        return f"{self.detail} -> {self.advice}" if self.advice else self.detail
