"""A net of members in simulated time: real cores and searches, wires that are queues, and chance."""

from __future__ import annotations

from collections import deque
from random import Random

from nodectl.cluster import tree
from nodectl.cluster.mesh import envelope
from nodectl.cluster.mesh.core import Core
from nodectl.cluster.mesh.envelope import Message
from nodectl.cluster.mesh.root import Root
from nodectl.cluster.mesh.search import NotJoined, Search
from nodectl.cluster.mesh.settings import Settings

SETTINGS = Settings(width=2, silence=2.0, grace=5.0, patience=3.0)
SECOND = 1.0


class End:
    """One end of a wire: what has come for its owner, and has not been read."""

    def __init__(self, net: Net, owner: Member) -> None:
        self.net = net
        self.owner = owner
        self.other: End = self
        self.inbox: deque[bytes] = deque()
        self.is_open = True

    def send(self, payload: bytes, source: object = None) -> None:
        self.net.sent += 1
        if self.is_open and self.other.is_open:
            self.other.inbox.append(payload)

    def cut(self, reason: str) -> None:
        """The other side still reads some of what was on its way."""
        if not self.is_open:
            return
        self.is_open = False
        other = self.other
        while other.inbox and self.net.chance.random() < 0.5:
            other.inbox.pop()
        self.inbox.clear()
        self.net.ending.append(self)


class Member:
    """One process: its core, the search for its parent, and what it was told."""

    def __init__(self, net: Net, rank: int, start: int = 0) -> None:
        self.net = net
        self.rank = rank
        self.turn = start
        self.alive = True
        self.out = False
        self.asking: End | None = None
        self.first = True
        self.pauses = False  # until some time has passed
        self.search: Search | None = None
        self.heard: dict[int, list[object]] = {}
        self.told_lost: list[int] = []
        self.told_resumed: list[int] = []
        self.core: Core = (
            Root(net.count, net.settings, self, start)
            if rank == tree.ROOT
            else Core(rank, net.count, net.settings, self, start)
        )
        self.core.addresses = ((f"n{rank}", rank),)
        self.core.root = (("n0", tree.ROOT),)

    # What the core tells.

    def message(self, message: Message) -> None:
        self.heard.setdefault(message.sender, []).append(message.header["number"])

    own = message

    def lost(self, rank: int, why: str) -> None:
        self.told_lost.append(rank)
        self.out = self.out or rank == self.rank

    def resumed(self, rank: int) -> None:
        self.told_resumed.append(rank)

    def leader(self) -> None:
        pass

    def succeeded(self, epoch: int, root: int, at: object) -> None:
        pass

    def orphaned(self, why: str) -> None:
        self.seek([one for one in self.core.above if one[0] not in self.core.gone])

    # The search, as parent.py does it.

    def seek(self, above: list[tuple[int, tuple[tuple[str, int], ...]]]) -> None:
        self.search = Search(above)

    def ask(self) -> None:
        """Asks the next one. The address is a rank here."""
        assert self.search is not None
        addresses = self.search.next()
        if addresses is None:
            self.search.again()
            self.pauses = True
            return
        goal = self.net.members[addresses[0][1]]
        if not goal.alive or goal.out or self.net.chance.random() < self.net.unreachable:
            self.search.failed("no answer")
            return
        self.asking = self.net.wire(self, goal)
        self.turn += 1
        words = {"say": "join", "rank": self.rank, "turn": self.turn, "addresses": self.core.addresses}
        self.asking.send(envelope.control({**words, "avoid": self.search.avoided, "first": self.first}))

    def came(self, end: End, payload: bytes) -> None:
        if end is not self.asking:
            self.core.heard(end, payload, self.net.now)
            return
        words = envelope.control_words(payload)
        assert self.search is not None
        self.asking = None
        try:
            if self.search.answered(str(words["say"]), words):
                self.search, self.first = None, False
                self.core.welcomed(end, words)
                return
        except NotJoined:
            self.search, self.out = None, True
        end.cut("not here")

    def ended(self, end: End) -> None:
        if end is self.asking:
            self.asking = None
            assert self.search is not None
            self.search.failed("gone")
        elif self.alive:
            self.core.ended(end, "gone", self.net.now)


class Net:
    """`count` ranks; whoever is `alive` acts in an order of chance."""

    def __init__(self, count: int, chance: Random, settings: Settings = SETTINGS) -> None:
        self.count = count
        self.chance = chance
        self.settings = settings
        self.now = 0.0
        self.sent = 0
        self.number = 0
        self.unreachable = 0.1  # how often nobody answers
        self.started = 0
        self.ends: list[End] = []
        self.ending: list[End] = []
        self.members: dict[int, Member] = {}
        self.said: list[tuple[Member, Member, int, bool]] = []
        for rank in range(count):
            self.begin(rank)
        self.begin(tree.LEADER)

    def begin(self, rank: int) -> None:
        """A process of this rank; the leader's numbers go on where those of the one before ended."""
        self.started += 1
        start = self.started << 32 if rank == tree.LEADER else 0
        self.members[rank] = member = Member(self, rank, start)
        if rank != tree.ROOT:
            member.seek([(tree.ROOT, (("n0", tree.ROOT),))])

    def wire(self, one: Member, other: Member) -> End:
        near, far = End(self, one), End(self, other)
        near.other, far.other = far, near
        self.ends += [near, far]
        return near

    def kill(self, rank: int) -> None:
        self.members[rank].alive = False
        for end in [end for end in self.ends if end.owner.rank == rank and not end.owner.alive]:
            end.cut("killed")

    def say(self, sender: int, to: int) -> int:
        """Sends a number higher than all before."""
        self.number += 1
        one, other = self.members[sender], self.members[to]
        one.core.send(to, "word", {"number": self.number})
        if one.rank == tree.ROOT or not one.first:  # otherwise it has not joined
            self.said.append((one, other, self.number, sender in other.heard))
        return self.number

    def step(self) -> bool:
        """One thing happens. False where nothing is left to be done now."""
        doings: list[tuple[str, End | Member]] = [("read", end) for end in self.ends if end.inbox and end.owner.alive]
        doings += [("end", end) for end in self.ends if not end.other.is_open and not end.inbox]
        doings += [("tell", end) for end in self.ending]
        searching = (one for one in self.members.values() if one.search and one.asking is None and one.alive)
        doings += [("ask", one) for one in searching if not (one.out or one.pauses)]
        if not doings:
            return False
        what, it = self.chance.choice(doings)
        if isinstance(it, Member):
            it.ask()
        elif what == "read":
            it.owner.came(it, it.inbox.popleft())
        elif what == "tell":
            self.ending.remove(it)
            self.close(it)
        else:
            it.is_open = False
            self.close(it)
        return True

    def close(self, end: End) -> None:
        if end in self.ends:
            self.ends.remove(end)
            end.owner.ended(end)
        if end in self.ending:
            self.ending.remove(end)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def settle(self, seconds: float = 0.0) -> None:
        """Everything that can happen happens, for some time."""
        until = self.now + seconds
        while True:
            allowed = 400 * (self.count + 5) ** 2
            while allowed and self.step():
                allowed -= 1
            assert allowed, "it does not come to rest"
            if self.now >= until:
                return
            self.now += SECOND
            for member in self.members.values():
                member.pauses = False
                if member.alive:
                    member.core.tick(self.now)

    def alive(self) -> list[int]:
        return sorted(rank for rank, member in self.members.items() if member.alive)
