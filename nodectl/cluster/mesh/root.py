"""The root of the tree: assigns parents, and declares ranks lost."""

from collections.abc import Iterable, Mapping

from nodectl.cluster import tree
from nodectl.cluster.mesh import envelope
from nodectl.cluster.mesh.core import Core, Listener, Wire, refuse
from nodectl.cluster.mesh.roll import Entry, Roll
from nodectl.cluster.mesh.settings import Settings
from nodectl.cluster.mesh.words import Census, Join

_TIMES_OF_A_SEARCH = 2  # not all ranks notice the loss of an old root at the same time


class Root(Core):
    """The member at place 0 of the tree."""

    def __init__(self, count: int, settings: Settings, listener: Listener, start: int) -> None:
        super().__init__(tree.ROOT, count, settings, listener, start)
        self.roll = Roll(count, settings.width, settings.grace, settings.silence + settings.grace)
        self._waiting: dict[Wire, tuple[Join, float]] = {}  # the request, and the deadline for the parent
        self._waiting_for: dict[int, list[Wire]] = {}
        self._has_succeeded = False

    def succeed(self, peers: Iterable[int], gone: Mapping[int, str], now: float) -> None:
        """Take over peers and lost ranks of the tree before. Ranks without a join in time are lost."""
        super().succeed(peers, gone, now)
        self._has_succeeded = True
        limit = self.settings.silence + self.settings.grace + self.settings.patience
        turns = self.count * self.settings.spacing  # in which the ranks call, one after the other
        self.roll.succeed(gone, now + turns + _TIMES_OF_A_SEARCH * limit)

    def tick(self, now: float) -> None:
        """Declare overdue ranks lost; place waiting ranks past their deadline."""
        if late := self.roll.overdue(now):
            self._say_lost({rank: self.roll.lost[rank] for rank in late})
        for wire, (join, until) in list(self._waiting.items()):
            if until <= now and wire in self._waiting:  # an earlier placement in this loop may have placed it
                del self._waiting[wire]
                self._place(wire, join, now)

    def postpone(self, by: float) -> None:
        """Prolong all deadlines by `by` seconds, for which this process did not run."""
        self.roll.postpone(by)
        self._waiting = {wire: (join, until + by) for wire, (join, until) in self._waiting.items()}

    def asked(self, wire: Wire, join: Join, now: float) -> None:
        """Handle a request to join, the first message of every rank, and assign a parent.

        A rank that comes before its parent waits for the parent.
        """
        if join.rank == tree.LEADER:
            self.adopt(wire, join, now)
        elif join.rank in self.roll.lost:
            refuse(wire, self.roll.lost[join.rank], lost=True)
        elif join.first and self._may_come(tree.parent(join.rank, self.settings.width)) and not join.avoid:
            self._waiting[wire] = (join, now + self.settings.patience)
            self._waiting_for.setdefault(tree.parent(join.rank, self.settings.width), []).append(wire)
        else:
            self._place(wire, join, now)

    def _may_come(self, rank: int) -> bool:
        return rank not in self.roll.there and rank not in self.roll.lost and rank not in self.roll.missing

    def _place(self, wire: Wire, join: Join, now: float) -> None:
        way = self.roll.way_up(join.rank, join.avoid)
        if not way or way[0] == tree.ROOT:
            self.adopt(wire, join, now)
        else:
            above = [[rank, self.roll.addresses[rank]] for rank in way if rank != tree.ROOT]
            wire.send(envelope.control({"say": "go", "to": above}))

    def ended(self, wire: Wire, why: str, now: float) -> None:
        """Handle the end of a wire, perhaps of a waiting rank."""
        self._waiting.pop(wire, None)
        super().ended(wire, why, now)

    def announce(self, now: float) -> None:
        """Enter the ranks directly beneath the root in the roll."""
        self._enter(self.rank, list(self._entries.values()), now)

    def counted(self, wire: Wire, census: Census, now: float) -> bool:
        """Enter a census in the roll. Return False for an outdated census."""
        is_new = super().counted(wire, census, now)
        if is_new:
            self._enter(census.at, census.entries, now)
        return is_new

    def _enter(self, at: int, entries: list[Entry], now: float) -> None:
        leader = [entry for entry in entries if entry.rank == tree.LEADER]
        width = self.settings.width
        change = self.roll.census(
            at, [one for one in entries if one.rank > at and tree.is_beneath(one.rank, at, width)], now
        )
        if leader and leader[0].turn > self.leader_turn:
            self.led(leader[0].turn, at)
            self.tell_beneath({"say": "leader", "turn": self.leader_turn, "at": at})
        back = change.resumed + (change.joined if self._has_succeeded else [])
        if back:
            for rank in back:
                self.resumed(rank)
            self.tell_beneath({"say": "resumed", "ranks": [[rank, at] for rank in back]})
        if change.joined:
            self._place_those_who_waited(change.joined, now)

    def _place_those_who_waited(self, joined: list[int], now: float) -> None:
        for wire in [wire for rank in joined for wire in self._waiting_for.pop(rank, ())]:
            if wire in self._waiting:
                self._place(wire, self._waiting.pop(wire)[0], now)

    def give_up(self, rank: int, why: str, now: float) -> None:
        """Declare a rank lost, on the word of a member or of the engine."""
        if tree.ROOT < rank < self.count and self.roll.lose(rank, why, now):
            self._say_lost({rank: why})

    def _say_lost(self, ranks: dict[int, str]) -> None:
        self.tell_beneath({"say": "lost", "ranks": [[rank, why] for rank, why in ranks.items()]})
        for rank, why in ranks.items():
            self.lost(rank, why)
