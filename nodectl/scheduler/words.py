"""Numbers in words for people. In the daemon and in planning commands."""

from __future__ import annotations


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with a noun: 1 CPU, 2 CPUs."""
    return f"{number} {one if number == 1 else many or one + 's'}"
