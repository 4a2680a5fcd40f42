"""Past times as typed for `nodectl acct -S`. Pure."""

from __future__ import annotations

from nodectl.model import moments


def moment(text: str, now: float) -> float:
    """Parse a time into seconds since the epoch. Times before 1970 become 0. Raises ValueError.

    Accepted: YYYY-MM[-DD][THH:MM[:SS]], MM/DD[/YY][-HH:MM], HH:MM[:SS][am|pm] of today, a word such as today,
    yesterday, noon; now-2days.
    """
    try:
        return moments.moment(text, now, past=True)
    except ValueError:
        known = "HH:MM, MM/DD, YYYY-MM-DD[THH:MM[:SS]], today, yesterday, now-2days"
        raise ValueError(f"{text[:40]!r} is no time: {known}") from None


def midnight(now: float) -> float:
    """Return the beginning of the day."""
    return moment("today", now)
