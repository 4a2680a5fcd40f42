"""Times in the notation of Slurm's commands. Pure."""

from __future__ import annotations

import time

_DAY, _HOUR, _MINUTE = 86_400, 3600, 60


def short(seconds: float) -> str:
    """Return a duration without leading zero units: 0:05, 1:02:03, 2-00:00:00."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, left = divmod(rest, _MINUTE)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def limit(seconds: float | None) -> str:
    """Return a time limit."""
    return short(seconds) if seconds else "UNLIMITED"


def long_duration(seconds: float) -> str:
    """Return a duration in scontrol's form: 00:00:05, 1-02:03:04."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, _DAY)
    clock = f"{rest // _HOUR:02}:{rest // _MINUTE % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def long_limit(seconds: float | None) -> str:
    """Return a time limit in scontrol's form."""
    return long_duration(seconds) if seconds else "UNLIMITED"


def moment(seconds: float | None, none: str = "N/A") -> str:
    """Return a point in time, local."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds)) if seconds else none


def line_of_now(now: float) -> str:
    """Return the line above a long table."""
    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(now))
