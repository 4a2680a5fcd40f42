"""The routes to the ranks beneath a member, learnt from the censuses passing by on the way to the root. No I/O, no
clock.

A rank does not always stand at its regular place: its nearest ancestor may be unreachable for it alone. So a route
follows from the censuses, not from the rank's number.
"""

from collections.abc import Container, Iterable

from nodectl.cluster.mesh.roll import Entry


class Routes:
    """The routes of a member. The way to an unknown rank goes up."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}
        self._turns: dict[int, int] = {}
        self._beneath: dict[int, set[int]] = {}

    def census(self, at: int, entries: Iterable[Entry]) -> None:
        """Record the ranks directly beneath `at`, which itself is beneath this member."""
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
        """Return the number of known ranks beneath `neighbours`."""
        return sum(self.next_hop(rank, neighbours) is not None for rank in self._above)

    def next_hop(self, to: int, neighbours: Container[int]) -> int | None:
        """Return the neighbour on the way to a rank; None where the way goes up."""
        above = self._above
        at: int | None = to
        while at is not None and at not in neighbours:
            at = above.get(at)
        return at
