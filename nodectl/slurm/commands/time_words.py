"""Times in the notation of Slurm's commands. Pure."""

from __future__ import annotations

import time

from nodectl.model.words import duration, short_duration


def limit(seconds: float | None) -> str:
    """Return a time limit."""
    return short_duration(seconds) if seconds else "UNLIMITED"


def long_limit(seconds: float | None) -> str:
    """Return a time limit in scontrol's form."""
    return duration(seconds) if seconds else "UNLIMITED"


def line_of_now(now: float) -> str:
    """Return the line above a long table."""
    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(now))
