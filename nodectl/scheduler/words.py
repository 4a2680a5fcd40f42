"""Numbers in words for people. In the daemon and in planning commands."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return seconds as Slurm writes a time limit: 1-02:03:04."""
    whole = max(0, round(seconds))
    days, rest = divmod(whole, 86_400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with a noun: 1 CPU, 2 CPUs."""
    return f"{number} {one if number == 1 else many or one + 's'}"
