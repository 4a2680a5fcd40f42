"""A member of the tree: how a rank handles messages from neighbours. No I/O, no clock.

Neighbours are wires: one up to the parent, one to each rank directly beneath, one to the leader where the leader has
joined here. The root also keeps the roll (`root.py`).
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from nodectl.cluster import tree
from nodectl.cluster.mesh import envelope
from nodectl.cluster.mesh.envelope import Header, Message
from nodectl.cluster.mesh.roll import Addresses, Entry
from nodectl.cluster.mesh.routes import Routes
from nodectl.cluster.mesh.settings import Settings
from nodectl.cluster.mesh.words import BadWords, Census, Join, addresses_of, number, ranks_of, text

_OURS = "ours"
Above = list[tuple[int, Addresses]]


class Wire(Protocol):
    """A proven link to a neighbour."""

    def send(self, payload: bytes, source: "Wire | None" = None) -> None:
        """Send a payload without blocking.

        Where the neighbour is slow, nothing more is read from `source` until the neighbour has caught up.
        """

    def cut(self, reason: str) -> None:
        """Close the link at once."""


class Listener(Protocol):
    """The owner of a `Core`, called with messages and with changes of the tree."""

    def message(self, message: Message) -> None:
        """Handle a message addressed to this rank."""

    def own(self, message: Message) -> None:
        """Handle a message from this rank to itself."""

    def lost(self, rank: int, why: str) -> None:
        """Handle the permanent loss of a rank, which may be this rank."""

    def resumed(self, rank: int) -> None:
        """Handle a restored way to a rank: messages between the rank and this member may have been lost."""

    def leader(self) -> None:
        """Handle the arrival of the first leader or of a new leader."""

    def orphaned(self, why: str) -> None:
        """Handle the end of the wire to the parent."""

    def succeeded(self, epoch: int, root: int, at: Addresses) -> None:
        """Handle a new tree with root `root`, which replaces this tree."""


class Core:
    """A member of the tree.

    Messages are numbered from `start` + 1: a process that begins anew must use higher numbers than the one before.
    """

    def __init__(self, rank: int, count: int, settings: Settings, listener: Listener, start: int) -> None:
        self.rank = rank
        self.count = count
        self.settings = settings
        self.listener = listener
        self.addresses: Addresses = ()
        self.up: Wire | None = None
        self.root: Addresses = ()
        self.above: Above = []  # from the nearest to the root: an orphan asks these ranks for a place
        self.beneath: dict[int, Wire] = {}
        self.gone: dict[int, str] = {}
        self.leader_turn = -1
        self.leader_at = tree.ROOT
        self._routes = Routes()
        self._entries: dict[int, Entry] = {}
        self._ranks: dict[Wire, int] = {}
        self._leader_way: Wire | None = None
        self._censuses = 0
        self._counted: dict[int, int] = {}  # the turn of the last census of each rank beneath us
        self._number = start
        self._last: dict[int, int] = {}  # the number of the last message from each rank
        self._peers: set[int] = set()  # ranks to which we have sent a message

    def succeed(self, peers: Iterable[int], gone: Mapping[int, str], now: float) -> None:
        """Take over the lost ranks of the tree before, and the peers with messages under way there."""
        self._peers.update(peers)
        self.gone.update(gone)

    @property
    def number(self) -> int:
        """The number of the latest message from here."""
        return self._number

    @property
    def peers(self) -> set[int]:
        """The ranks with which this rank has exchanged messages."""
        return self._peers | self._last.keys()

    @property
    def nodes(self) -> int:
        """The number of ranks beneath this rank, including this rank."""
        return 1 + len(self.beneath) + self._routes.count(self.beneath)

    # Messages.

    def send(self, to: int, kind: str, header: Header, body: bytes = b"") -> None:
        """Send a message to a rank. Raises ValueError or TypeError where the message cannot be encoded."""
        self._number += 1
        if to == self.rank:
            self.listener.own(Message(to, self._number, kind, header, body))
            return
        self._peers.add(to)
        self._pass_on(to, envelope.message(self.rank, to, self._number, kind, header, body), None)

    def send_each(self, kind: str, common: Header, parts: Mapping[int, object], body: bytes = b"") -> None:
        """Send a message to many ranks, with a separate part for each rank."""
        self._number += 1
        self._peers.update(parts)
        for payload in envelope.each(self.rank, self._number, kind, common, parts, body):
            self._spread(payload, None)

    def heard(self, wire: Wire, payload: bytes, now: float) -> None:
        """Handle a payload from a wire. Raises BadMessage."""
        kind = payload[:1]
        if kind == envelope.BEAT:
            return
        if kind == envelope.CONTROL:
            words = envelope.control_words(payload)
            try:
                self._obey(wire, words, now)
            except BadWords as error:
                raise envelope.BadMessage(str(error)) from None
        elif wire is not self.up and wire not in self._ranks:
            raise envelope.BadMessage("a message from a node that has not joined")
        elif kind == envelope.MESSAGE:
            to = envelope.addressee(payload)
            if to == self.rank:
                self._take(envelope.opened(payload))
            else:
                self._pass_on(to, payload, wire)
        elif kind == envelope.EACH:
            self._spread(payload, wire)
        else:
            raise envelope.BadMessage("a payload of no kind that is known")

    def hop(self, to: int) -> Wire | None:
        """Return the wire on the way to a rank, or None where there is no way."""
        if to == tree.LEADER:
            return self._leader_way or self.up
        if to in self.gone:
            return None
        child = self._routes.next_hop(to, self.beneath)
        return self.up if child is None else self.beneath[child]

    def _pass_on(self, to: int, payload: bytes, came: Wire | None) -> None:
        """Pass a payload on, but never back over the wire `came`.

        A payload without a way is dropped; both ends learn of the loss by `resumed` or `lost`.
        """
        hop = self.hop(to)
        if hop is not None and hop is not came:
            hop.send(payload, came)

    def _spread(self, payload: bytes, came: Wire | None) -> None:
        here = came is None
        for hop, payloads in envelope.split(payload, self._hop_of_part).items():
            for one in payloads:
                if hop == _OURS:
                    self._take(envelope.opened_each(one), own=here)
                elif not isinstance(hop, str) and hop is not None and hop is not came:
                    hop.send(one, came)

    def _hop_of_part(self, to: int) -> Wire | str | None:
        return _OURS if to == self.rank else self.hop(to)

    def _take(self, message: Message, *, own: bool = False) -> None:
        if own:
            self.listener.own(message)
        elif message.number > self._last.get(message.sender, -1) and message.sender not in self.gone:
            self._last[message.sender] = message.number
            self.listener.message(message)

    def tick(self, now: float) -> None:
        """Do due work. Only the root has due work."""

    def postpone(self, by: float) -> None:
        """Prolong the root's deadlines by `by` seconds, for which this process did not run.

        Other processes may have been stopped, too.
        """

    # Neighbours.

    def welcomed(self, wire: Wire, words: Header) -> None:
        """Take the process at the far end of `wire` as parent. Raises BadWords."""
        self.up = wire
        self._learn(words)
        self.announce(0.0)

    def ended(self, wire: Wire, why: str, now: float) -> None:
        """Handle the end of a wire."""
        if wire is self.up:
            self.up = None
            self.listener.orphaned(why)
        elif (rank := self._ranks.pop(wire, None)) is not None:
            self._forget(rank, wire)
            self.announce(now)

    def announce(self, now: float) -> None:
        """Send the parent a census of the ranks directly beneath this rank."""
        if self.up is not None and self.rank != tree.LEADER:
            self._censuses += 1
            census = Census(self.rank, self._censuses, list(self._entries.values()))
            self.up.send(envelope.control(census.words()))

    def give_up(self, rank: int, why: str, now: float) -> None:
        """Report upward the loss of a rank; the reporter is certain."""
        if self.up is not None:
            self.up.send(envelope.control({"say": "give_up", "rank": rank, "why": why}))

    def _obey(self, wire: Wire, words: Header, now: float) -> None:
        say = words.get("say")
        if say == "join":
            self.asked(wire, Join.of(words, self.count), now)
        elif wire is self.up:
            self._told(str(say), words, now)
        elif wire in self._ranks:
            if say == "census":
                self.counted(wire, Census.of(words), now)
            elif say == "give_up":
                self.give_up(number(words, "rank"), text(words, "why"), now)

    def asked(self, wire: Wire, join: Join, now: float) -> None:
        """Handle a request to join beneath this rank."""
        if join.rank == self.rank:
            refuse(wire, "it is ours", lost=False)  # one of our addresses is also that of another node
        elif join.rank in self.gone:
            refuse(wire, self.gone[join.rank], lost=True)
        elif join.rank != tree.LEADER and not tree.is_beneath(join.rank, self.rank, self.settings.width):
            refuse(wire, f"rank {join.rank} does not stand beneath rank {self.rank}", lost=False)
        else:
            self.adopt(wire, join, now)

    def adopt(self, wire: Wire, join: Join, now: float) -> None:
        """Accept a rank beneath this rank, in place of an earlier process of the same rank."""
        known = self._entries.get(join.rank)
        if known is not None:
            if known.turn >= join.turn:
                refuse(wire, f"a newer one of rank {join.rank} is there", lost=False)
                return
            earlier = next(one for one, rank in self._ranks.items() if rank == join.rank)
            del self._ranks[earlier]
            earlier.cut("it has joined anew")
        self._ranks[wire] = join.rank
        self._entries[join.rank] = Entry(join.rank, join.turn, join.addresses)
        if join.rank == tree.LEADER:
            self._leader_way, self.leader_at = wire, self.rank
        else:
            self.beneath[join.rank] = wire
        wire.send(envelope.control({"say": "welcome", **self._knowledge()}))
        self.announce(now)

    def counted(self, wire: Wire, census: Census, now: float) -> bool:
        """Enter a census from beneath in the routes and send the census up. Return False for an outdated census.

        The census also shows where the leader is.
        """
        if census.turn <= self._counted.get(census.at, 0):
            return False
        self._counted[census.at] = census.turn
        if any(entry.rank == tree.LEADER for entry in census.entries):
            self._leader_way, self.leader_at = wire, census.at
        elif self._leader_way is wire and self.leader_at == census.at:
            self._leader_way = None
        self._routes.census(census.at, census.entries)
        if self.up is not None:
            self.up.send(envelope.control(census.words()))
        return True

    def _forget(self, rank: int, wire: Wire) -> None:
        self._entries.pop(rank, None)
        self.beneath.pop(rank, None)
        if self._leader_way is wire:
            self._leader_way = None

    # Control messages from the root, also passed on down.

    def _told(self, say: str, words: Header, now: float) -> None:
        if say == "above":
            self._learn(words)
            self.announce(now)  # censuses were lost while the way was broken
            return
        if say == "no":
            self.lost(self.rank, text(words, "why"))
            return
        if say == "epoch":
            self.listener.succeeded(number(words, "epoch"), number(words, "root"), addresses_of(words.get("at")))
            return
        if say == "lost":
            for rank, why in ranks_of(words, "ranks"):
                self.lost(rank, str(why))
        elif say == "resumed":
            for rank, _ in ranks_of(words, "ranks"):
                self.resumed(rank)
        elif say == "leader":
            self.led(number(words, "turn"), number(words, "at"))
        self.tell_beneath(words)

    def tell_beneath(self, words: Header) -> None:
        """Send a control message to every rank directly beneath, and to the leader."""
        payload = envelope.control(words)
        for wire in list(self._ranks):
            wire.send(payload)

    def lost(self, rank: int, why: str) -> None:
        """Record a rank as lost for good."""
        if rank in self.gone:
            return
        self.gone[rank] = why
        self._last.pop(rank, None)
        self._peers.discard(rank)
        if rank in self.beneath:
            wire = self.beneath[rank]
            refuse(wire, why, lost=True)
            del self._ranks[wire]
            self._forget(rank, wire)
        self.listener.lost(rank, why)

    def resumed(self, top: int) -> None:
        """Report each peer with possibly lost messages after the way of rank `top` was broken and is whole again.

        The ranks beneath `top` have missed messages from all ranks elsewhere, and control messages about each other.
        """
        if self._stands_beneath(self.rank, top):
            affected = [*self._peers, *self._last]
        else:
            generations = tree.beneath(top, self.count, self.settings.width)
            affected = [rank for generation in generations for rank in generation]
            if self._stands_beneath(tree.LEADER, top):
                affected.append(tree.LEADER)
        for peer in sorted(set(affected)):
            if peer in self._peers or peer in self._last:
                self.listener.resumed(peer)

    def led(self, turn: int, at: int) -> None:
        """Record where the leader is. A leader of a new turn knows nothing of messages to the leader before."""
        self.leader_at = at
        if turn <= self.leader_turn:
            return
        known = self.leader_turn >= 0
        self.leader_turn = turn
        if self.rank == tree.LEADER:  # our own link was cut, if there was one
            for peer in sorted({*self._peers, *self._last}) if known else ():
                self.listener.resumed(peer)
        else:
            self.listener.leader()
            if known:
                self.listener.resumed(tree.LEADER)

    def _stands_beneath(self, rank: int, top: int) -> bool:
        return tree.is_beneath(self.leader_at if rank == tree.LEADER else rank, top, self.settings.width)

    def _knowledge(self) -> dict[str, object]:
        above: Iterable[tuple[int, Addresses]] = [(self.rank, self.addresses), *self.above]
        gone = [[rank, why] for rank, why in self.gone.items()]
        return {"above": [[*one] for one in above], "lost": gone, "leader": self.leader_turn, "at": self.leader_at}

    def _learn(self, words: Header) -> None:
        """Record the parent's knowledge, and send the same to the ranks beneath."""
        self.above = [(rank, addresses_of(rest)) for rank, rest in ranks_of(words, "above")]
        if self.above[-1][0] != tree.ROOT:  # our parent does not know its own ancestors yet
            self.above.append((tree.ROOT, self.root))
        for rank, why in ranks_of(words, "lost"):
            self.lost(rank, str(why))
        self.led(number(words, "leader"), number(words, "at"))
        self.tell_beneath({"say": "above", **self._knowledge()})


def refuse(wire: Wire, why: str, *, lost: bool) -> None:
    """Refuse a join. The caller asks another rank, or ends where `lost` is true."""
    wire.send(envelope.control({"say": "no", "why": why, "lost": lost}))
