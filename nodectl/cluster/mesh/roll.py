"""The root's roll: which rank stands beneath which, who is missing, who is lost for good. No I/O, no clock.

It is told whom each node has directly beneath it (a census). A rank is there while a chain of such leads from it up to
the root. One that no longer is there gets `grace` seconds to be back; then it is lost, and stays so. Where more are
missing than are there, they get `doubt` seconds more: it may be the root that is cut off, and the others will say so.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nodectl.cluster import tree

Addresses = tuple[tuple[str, int], ...]


class Entry(NamedTuple):
    """One rank in a census. `turn` counts how often it has joined: an older report does not undo a newer one."""

    rank: int
    turn: int
    addresses: Addresses


class Change(NamedTuple):
    """What a census has changed: who is there for the first time, whose way was broken and is whole again."""

    joined: list[int]
    resumed: list[int]


class Roll:
    """What the root knows."""

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
        self.missing: dict[int, float] = {}  # until when it may be back
        self.awaited: dict[int, float] = {}  # likewise, of those that stood in the tree before this one
        self.lost: dict[int, str] = {}

    def census(self, at: int, entries: Iterable[Entry], now: float) -> Change:
        """Whom `at` has beneath it now: all of them."""
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
        """Who has been missing for too long: lost from here on."""
        doubt = self._doubt if len(self.missing) > len(self.there) else 0.0
        late = [rank for rank, until in self.missing.items() if until + doubt <= now]
        late += [rank for rank, until in self.awaited.items() if until <= now]
        for rank in late:
            self.lose(rank, "it has not been heard for too long", now)
        return late

    def postpone(self, by: float) -> None:
        """Everybody who is missing gets so many seconds more."""
        self.missing = {rank: until + by for rank, until in self.missing.items()}
        self.awaited = {rank: until + by for rank, until in self.awaited.items()}

    def succeed(self, lost: Mapping[int, str], until: float) -> None:
        """Another root has known these: who is not lost is to come until then."""
        self.lost.update(lost)
        self.awaited = {rank: until for rank in range(1, self._count) if rank not in self.lost}

    def lose(self, rank: int, why: str, now: float) -> bool:
        """Says that a rank is lost for good: those beneath it have to stand elsewhere. False where that was known."""
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
        """Beneath whom a rank may stand, the nearest first, the root last."""
        avoided = set(without)
        return [one for one in tree.ancestors(rank, self._width) if one in self.there and one not in avoided]

    def _move(self, rank: int, at: int) -> None:
        if (above := self._above.get(rank)) is not None:
            self._beneath[above].discard(rank)
        self._above[rank] = at
        self._beneath[at].add(rank)

    def _mark(self, top: int, now: float, *, there: bool) -> None:
        """The rank and all beneath it."""
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
