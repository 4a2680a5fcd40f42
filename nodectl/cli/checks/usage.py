"""Other uses of this machine now: load, swap space, full disks, logged-in users. Findings of `nodectl doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.cli.checks.check import OK, WARN, Check
from nodectl.model.words import byte_words
from nodectl.placement.machine.figures import Disk, Figures, read

_MUCH_LOAD = 2  # waiting or running threads for each CPU
_MUCH_SWAP = 0.5  # of all swap space
_LITTLE_DISK = 0.02
_MOST_NAMED = 8


def all_checks() -> Iterator[Check]:
    """Yield every finding about use."""
    figures = read()
    yield load(figures)
    if figures.swap:
        yield swap(figures.swap_used, figures.swap)
    yield from filter(None, map(full, figures.disks))
    yield sessions(figures)


def load(figures: Figures) -> Check:
    """Check whether more threads want to run than there are CPUs."""
    found = f"{', '.join(f'{value:.2f}' for value in figures.load)} on {figures.cpus} CPUs"
    if figures.load[1] <= _MUCH_LOAD * figures.cpus:
        return Check(OK, "load", found)
    return Check(WARN, "load", found, "find what else runs (ps, top): steps share their CPUs with it")


def swap(used: int, total: int) -> Check:
    """Check whether much of the swap space is used."""
    found = f"{byte_words(used)} of {byte_words(total)} are used"
    if used <= total * _MUCH_SWAP:
        return Check(OK, "swap space", found)
    return Check(WARN, "swap space", found, "give steps limits: constrain_ram_space, allowed_swap_space")


def full(disk: Disk) -> Check | None:
    """Return a finding for a full or nearly full file system, else None."""
    if disk.free >= disk.total * _LITTLE_DISK:
        return None
    return Check(
        WARN, "disk", f"{disk.mount}: {byte_words(disk.free)} of {byte_words(disk.total)} are free", "make room"
    )


def sessions(figures: Figures) -> Check:
    """Report the logged-in users."""
    users = sorted({session.user for session in figures.sessions})
    if not users:
        return Check(OK, "sessions", "no user is logged in, according to utmp(5)")
    named = ", ".join(users[:_MOST_NAMED]) + (", ..." if len(users) > _MOST_NAMED else "")
    return Check(OK, "sessions", f"{len(figures.sessions)} of {named}")
