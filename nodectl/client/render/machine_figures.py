"""The figures of a machine in words: a name and a text for each subject. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodectl.model.words import byte_words, duration

_MOST_NAMED = 8


def figure_words(figures: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    """Yield the values of `machine.figures.Figures.as_json` in words; `now` is seconds since the epoch."""
    yield "up", duration(now - figures["booted"])
    yield "load", f"{' '.join(f'{load:.2f}' for load in figures['load'])} on {figures['cpus']} CPUs"
    yield "memory", f"{byte_words(figures['memory_available'])} of {byte_words(figures['memory'])} available"
    if figures["swap"]:
        yield "swap space", f"{byte_words(figures['swap_used'])} of {byte_words(figures['swap'])} used"
    for disk in figures["disks"]:
        yield f"disk {disk['mount']}", f"{byte_words(disk['free'])} of {byte_words(disk['total'])} free"
    users = sorted({session["user"] for session in figures["sessions"]})
    if users:
        more = f" and {len(users) - _MOST_NAMED} more" if len(users) > _MOST_NAMED else ""
        yield "sessions", f"{len(figures['sessions'])}, of {', '.join(users[:_MOST_NAMED])}{more}"
    if figures["temperatures"]:
        yield "temperature", ", ".join(f"{chip} {value:.0f} C" for chip, value in figures["temperatures"].items())
