"""Who stands beneath us, and beneath whom, as the censuses say that pass us on their way to the root. No I/O, no clock.

A rank does not always stand where it could: the nearest ancestor may be out of its reach alone. So the way to it is
what has been said of it, not what follows from its number.
"""

from collections.abc import Container, Iterable

from nodectl.cluster.mesh.roll import Entry


class Routes:
    """Of one member. What it does not know stands somewhere else: the way to it goes up."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}
        self._turns: dict[int, int] = {}
        self._beneath: dict[int, set[int]] = {}

    def census(self, at: int, entries: Iterable[Entry]) -> None:
        """Whom `at`, one beneath us, has beneath it now."""
        before = self._beneath.get(at, set())
        now = set()
        for rank, turn, _ in entries:
            if turn >= self._turns.get(rank, -1) and rank > at:
                now.add(rank)
                self._turns[rank] = turn
                self._above[rank] = at
        self._beneath[at] = now
        for rank in before - now:
            if self._above.get(rank) == at:
                del self._above[rank]

    def count(self, neighbours: Container[int]) -> int:
        """How many stand beneath these."""
        return sum(self.next_hop(rank, neighbours) is not None for rank in self._above)

    def next_hop(self, to: int, neighbours: Container[int]) -> int | None:
        """Which neighbour leads to a rank; None where the way goes up."""
        above = self._above
        at: int | None = to
        while at is not None and at not in neighbours:
            at = above.get(at)
        return at
