"""The root's roll: which rank stands beneath which, which ranks are missing, which are lost for good. No I/O, no clock.

The root receives the ranks directly beneath each node (a census). A rank is there while a chain of censuses leads from
it up to the root. A rank no longer there has `grace` seconds to come back; then it is lost for good. While more ranks
are missing than are there, they get `doubt` seconds more: the root itself may be cut off, and other ranks will say so.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nodectl.cluster import tree

Addresses = tuple[tuple[str, int], ...]


class Entry(NamedTuple):
    """A rank in a census. `turn` counts the joins of the rank: an older report does not undo a newer report."""

    rank: int
    turn: int
    addresses: Addresses


class Change(NamedTuple):
    """The result of a census: newly joined ranks, and ranks with a restored way."""

    joined: list[int]
    resumed: list[int]


class Roll:
    """The root's knowledge of the tree."""

    def __init__(self, count: int, width: int, grace: float, doubt: float = 0.0) -> None:
        self._count = count
        self._width = width
        self._grace = grace
        self._doubt = doubt
        self._turns: dict[int, int] = {}
        self._above: dict[int, int] = {}
        self._beneath: dict[int, set[int]] = {tree.ROOT: set()}
        self.addresses: dict[int, Addresses] = {}
        self.there = {tree.ROOT}
        self.missing: dict[int, float] = {}  # the deadline for the rank's return
        self.awaited: dict[int, float] = {}  # the deadline for ranks of the tree before this one
        self.lost: dict[int, str] = {}

    def census(self, at: int, entries: Iterable[Entry], now: float) -> Change:
        """Record all ranks directly beneath `at`; return the changes."""
        change = Change([], [])
        if at in self.lost:
            return change
        beneath = self._beneath.setdefault(at, set())
        staying = set()
        for entry in entries:
            known = self._turns.get(entry.rank, -1)
            if entry.turn < known or entry.rank in self.lost:
                continue
            staying.add(entry.rank)
            self.addresses[entry.rank] = entry.addresses
            if entry.turn == known and self._above.get(entry.rank) == at:
                continue
            self._turns[entry.rank] = entry.turn
            self._move(entry.rank, at)
            (change.resumed if known >= 0 else change.joined).append(entry.rank)
        for rank in beneath - staying:
            beneath.discard(rank)
            if self._above.get(rank) == at:
                del self._above[rank]
                self._mark(rank, now, there=False)
        for rank in change.joined + change.resumed:
            self._mark(rank, now, there=at in self.there)
        return change

    def overdue(self, now: float) -> list[int]:
        """Declare ranks lost after too long an absence, and return the ranks."""
        doubt = self._doubt if len(self.missing) > len(self.there) else 0.0
        late = [rank for rank, until in self.missing.items() if until + doubt <= now]
        late += [rank for rank, until in self.awaited.items() if until <= now]
        for rank in late:
            self.lose(rank, "it has not been heard for too long", now)
        return late

    def postpone(self, by: float) -> None:
        """Give every missing rank `by` seconds more."""
        self.missing = {rank: until + by for rank, until in self.missing.items()}
        self.awaited = {rank: until + by for rank, until in self.awaited.items()}

    def succeed(self, lost: Mapping[int, str], until: float) -> None:
        """Take over the lost ranks of the root before. Every remaining rank must join by `until`."""
        self.lost.update(lost)
        self.awaited = {rank: until for rank in range(1, self._count) if rank not in self.lost}

    def lose(self, rank: int, why: str, now: float) -> bool:
        """Declare a rank lost for good. Return False where the loss was known.

        The ranks beneath must join elsewhere.
        """
        if rank in self.lost or rank == tree.ROOT:
            return False
        self.lost[rank] = why
        self.missing.pop(rank, None)
        self.awaited.pop(rank, None)
        self.there.discard(rank)
        self.addresses.pop(rank, None)
        if (above := self._above.pop(rank, None)) is not None:
            self._beneath[above].discard(rank)
        for one in self._beneath.get(rank, ()):
            self._mark(one, now, there=False)
        return True

    def way_up(self, rank: int, without: Iterable[int] = ()) -> list[int]:
        """Return the ancestors beneath which a rank may stand, the nearest first, the root last."""
        avoided = set(without)
        return [one for one in tree.ancestors(rank, self._width) if one in self.there and one not in avoided]

    def _move(self, rank: int, at: int) -> None:
        if (above := self._above.get(rank)) is not None:
            self._beneath[above].discard(rank)
        self._above[rank] = at
        self._beneath[at].add(rank)

    def _mark(self, top: int, now: float, *, there: bool) -> None:
        """Mark a rank and all ranks beneath as there or missing."""
        waiting = [top]
        while waiting:
            rank = waiting.pop()
            waiting += self._beneath.get(rank, ())
            if rank in self.lost:
                continue
            if there:
                self.there.add(rank)
                self.missing.pop(rank, None)
                self.awaited.pop(rank, None)
            else:
                self.there.discard(rank)
                self.missing.setdefault(rank, now + self._grace)
