"""A member of the cluster in asyncio, by which the agent and the leader send and receive messages.

    mesh = Mesh(rank, names, secret, said={"cpus": 8})
    mesh.handle("start", started)
    await mesh.listen(["0.0.0.0"])          the root: its addresses go to all other members
    await mesh.join([("n1", 34567)])        every other member; the leader joins the agent that started it
    mesh.send(LEADER, "begun", {"job": 7, "step": 0})

Messages sent before `join` has returned are lost.

When the root is lost, another rank may take its place: `succeed` makes a new tree of the ranks that follow. The new
tree's epoch is part of the name for which its members call each other, so that no member accepts messages from an
earlier tree.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence

from nodectl.cluster import tree
from nodectl.cluster.link.connection import Link
from nodectl.cluster.link.tls import tls_of
from nodectl.cluster.mesh import envelope, parent
from nodectl.cluster.mesh.core import Core
from nodectl.cluster.mesh.envelope import Header, Message
from nodectl.cluster.mesh.links import Links
from nodectl.cluster.mesh.parent import Answer
from nodectl.cluster.mesh.roll import Addresses
from nodectl.cluster.mesh.root import Root
from nodectl.cluster.mesh.search import NotJoined, Search
from nodectl.cluster.mesh.settings import DEFAULT, Settings
from nodectl.cluster.mesh.words import BadWords

__all__ = ["LEADER", "Header", "Mesh", "NotJoined", "Settings"]

LEADER = tree.LEADER
_SAID = "mesh.said"  # the kind of an agent's message to the leader that describes its machine
Handler = Callable[[int, Header, bytes], None]


class Mesh:
    """A member of the tree with root `root` in this `epoch`.

    After the join the member sends the leader `said`, a description of this machine, and again to each new leader. The
    root takes place 0 in the tree; in exchange, rank 0 takes the place of the root's rank.
    """

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        secret: bytes,
        *,
        said: Header | None = None,
        settings: Settings = DEFAULT,
        epoch: int = 0,
        root: int = tree.ROOT,
    ) -> None:
        self.rank = rank
        self.epoch = epoch
        self.root = root
        self.names = names
        self.settings = settings
        self._said = said or {}
        self._secret = secret
        self._loop = asyncio.get_running_loop()
        start = time.monotonic_ns()  # above every number of an earlier leader, which ran on this machine, too
        self._turn = start if rank == LEADER else 0
        self._core = self._planted(start)
        self._handlers: dict[str, Handler] = {_SAID: self._introduce}
        self._on_lost: list[Callable[[int, str], None]] = []
        self._on_joined: list[Callable[[int, Header], None]] = []
        self._on_resumed: list[Callable[[int], None]] = []
        self._on_rootless: Callable[[bool], None] | None = None
        self._introduced: set[int] = set()
        self._links = Links(tls_of(secret, epoch), settings, self._came, self._answered, self._ended)
        self._welcomed = False
        self._closed = False
        self._is_silent = False  # while a silent link is cut: its other side would not answer, either
        self._returning: asyncio.Task[None] | None = None
        self._ticking = self._loop.create_task(self._tick())

    def _planted(self, start: int) -> Core:
        place = self._place(self.rank)
        if place == tree.ROOT:
            return Root(len(self.names), self.settings, self, start)
        return Core(place, len(self.names), self.settings, self, start)

    def _place(self, rank: int) -> int:
        """Return the place of a rank in the tree, or the rank at a place: the mapping is symmetric."""
        if self.root == tree.ROOT:
            return rank
        return {self.root: tree.ROOT, tree.ROOT: self.root}.get(rank, rank)

    # For the owner.

    def handle(self, kind: str, handler: Handler) -> None:
        """Call `handler(sender's rank, header, body)` with each message of this kind. The handler must not block."""
        self._handlers[kind] = handler

    def on_lost(self, told: Callable[[int, str], None]) -> None:
        """Call `told(rank, why)` when a node is gone for good.

        With our own rank: the cluster has given this node up, or this node cannot reach the cluster; no message arrives
        any more.
        """
        self._on_lost.append(told)

    def on_joined(self, told: Callable[[int, Header], None]) -> None:
        """At the leader, call `told(rank, said)` once for each rank, with the agent's description of the machine."""
        self._on_joined.append(told)

    def on_resumed(self, told: Callable[[int], None]) -> None:
        """Call `told(rank)` when the way to a rank is whole again after a break.

        Messages under way in either direction may be lost. `told` is called only for ranks with which this rank
        exchanged messages. With LEADER, the leader may also be a new one.
        """
        self._on_resumed.append(told)

    def on_rootless(self, told: Callable[[bool], None]) -> None:
        """Call `told(True)` when the root is missed, `told(False)` when a root is back, the same or another.

        The root is missed when it has not been reached for half of `grace`. With a callback set, the member then
        searches without a limit, or until `succeed`.
        """
        self._on_rootless = told

    @property
    def is_joined(self) -> bool:
        """True if this member has a parent. The root has none."""
        return self._core.up is not None

    @property
    def nodes(self) -> int:
        """The number of ranks beneath this rank, including this rank."""
        return self._core.nodes

    @property
    def addresses(self) -> Addresses:
        """The addresses on which this member listens."""
        return self._core.addresses

    def succeed(self, epoch: int, root: int, at: Addresses) -> None:
        """Move to the tree of this epoch, with root `root` at the addresses `at`, and inform the ranks beneath.

        Does nothing where the epoch is not above the member's own.
        """
        if epoch <= self.epoch or self._closed:
            return
        old, before = self._core, self.root
        old.tell_beneath({"say": "epoch", "epoch": epoch, "root": root, "at": at})
        peers = [self._place(place) for place in old.peers]
        gone = {self._place(place): why for place, why in old.gone.items()}
        gone.pop(root, None)  # it was cut off from a tree that is no more
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None
        self.epoch, self.root = epoch, root
        self._links.begin_anew(tls_of(self._secret, epoch))
        self._welcomed = False
        self._core = core = self._planted(old.number)
        core.addresses = old.addresses
        core.root = at
        now = self._loop.time()
        core.succeed([self._place(one) for one in peers], {self._place(one): why for one, why in gone.items()}, now)
        if root == self.rank:
            why = f"it cannot be reached, and {self.names[root]} leads in its place"
            core.give_up(self._place(before), why, now)
            self._is_found()
        else:
            self._returning = self._loop.create_task(self._return(Search([(tree.ROOT, at)]), self._delay))

    def send(self, to: int, kind: str, header: Header, body: bytes = b"") -> None:
        """Send a message without blocking. Raises ValueError above 4 MiB, the size of a frame.

        The message arrives once, after the messages sent before, or not at all.
        """
        self._core.send(self._place(to), kind, header, body)

    def send_each(self, kind: str, common: Header, each: Mapping[int, object], body: bytes = b"") -> None:
        """Send every rank in `each` a message with the header {**common, "part": each[rank]}."""
        self._core.send_each(kind, common, {self._place(rank): part for rank, part in each.items()}, body)

    def give_up(self, rank: int, why: str) -> None:
        """Declare a node lost, on the engine's word."""
        self._core.give_up(self._place(rank), why, self._loop.time())

    def room(self, to: int) -> bool:
        """False if a sender of much data to rank `to` should wait for `drained`."""
        link = self._core.hop(self._place(to))
        return not isinstance(link, Link) or link.room

    async def drained(self, to: int) -> None:
        """Wait until there is room on the way to a rank."""
        link = self._core.hop(self._place(to))
        if isinstance(link, Link):
            await link.drained()

    @property
    def has_leader(self) -> bool:
        """At the root: true if a way leads to the leader."""
        return self._core.hop(LEADER) is not None

    async def listen(self, hosts: Sequence[str], port: int = 0) -> list[tuple[str, int]]:
        """Listen on `hosts` and return the addresses. Raises OSError.

        `hosts` are numeric, as all addresses are: for a name asyncio would call the resolver in a thread.
        """
        found = await self._links.listen(hosts, port)
        self._core.addresses = tuple(found)
        return found

    async def join(self, at: Sequence[tuple[str, int]], *, limit: float = 30.0) -> None:
        """Join the tree of the root at `at`; return when a parent has accepted this member. Raises NotJoined."""
        self._core.root = tuple(at)
        await asyncio.sleep(self._delay)
        await parent.seek(self._ask, Search([(tree.ROOT, tuple(at))]), limit)

    async def close(self) -> None:
        """Close the links and stop the tasks."""
        self._leave()
        for task in (self._ticking, self._returning):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _leave(self) -> None:
        self._closed = True
        self._links.close()

    # Called by the core.

    def message(self, message: Message) -> None:
        """Call the handler of a message to this rank."""
        handler = self._handlers.get(message.kind)
        if handler is None:
            self._loop.call_exception_handler({"message": f"no handler for a message {message.kind!r}"})
            return
        self._call(f"a message {message.kind!r}", handler, self._place(message.sender), message.header, message.body)

    def _call(self, what: str, told: Callable[..., None], *words: object) -> None:
        try:
            told(*words)
        except Exception as error:  # a mistake of the handler: no reason to cut a link
            self._loop.call_exception_handler({"message": what, "exception": error})

    def own(self, message: Message) -> None:
        """Deliver a message from this rank to itself in a later turn of the loop, asynchronously like every message."""
        self._loop.call_soon(self.message, message)

    def lost(self, rank: int, why: str) -> None:
        """Report a node as gone for good. If this node is lost, close all links.

        The ranks beneath have to join elsewhere.
        """
        if rank == self._core.rank:
            self._leave()
        for told in self._on_lost:
            self._call("a lost node", told, self._place(rank), why)

    def resumed(self, rank: int) -> None:
        """Report a restored way to a rank: messages may be lost."""
        if rank == LEADER:
            self.leader()
        for told in self._on_resumed:
            self._call("a way that is whole again", told, self._place(rank))

    def leader(self) -> None:
        """Send a new leader the description of this machine."""
        if self.rank != LEADER:
            self.send(LEADER, _SAID, self._said)

    def _introduce(self, rank: int, said: Header, _: bytes) -> None:
        """At the leader: report an agent's description, once. An agent repeats the description after a link was cut."""
        if rank not in self._introduced:
            self._introduced.add(rank)
            for told in self._on_joined:
                self._call("a node that has joined", told, rank, said)

    def orphaned(self, why: str) -> None:
        """Search for another parent, or for the same parent after a mere loss of the link."""
        if not self._closed:
            above = [one for one in self._core.above if one[0] not in self._core.gone]
            silent = [above[0][0]] if self._is_silent and above else []
            self._returning = self._loop.create_task(self._return(Search(above, silent)))

    def succeeded(self, epoch: int, root: int, at: Addresses) -> None:
        """Follow the parent into another tree."""
        self._loop.call_soon(self.succeed, epoch, root, at)

    # Called by the links.

    def _came(self, link: Link, payload: bytes) -> None:
        """Pass a payload to the core. Raises BadMessage, ValueError."""
        self._core.heard(link, payload, self._loop.time())

    def _answered(self, link: Link, words: Header) -> None:
        """Handle the answer to a join: a welcome makes the far side the parent. Raises BadMessage."""
        if words.get("say") == "welcome":
            self._welcomed = True
            try:
                self._core.welcomed(link, words)
            except BadWords as error:
                raise envelope.BadMessage(str(error)) from None

    def _ended(self, link: Link, why: str) -> None:
        if not self._closed:
            self._core.ended(link, why, self._loop.time())

    # The parent.

    async def _ask(self, addresses: Addresses, avoid: list[int]) -> Answer:
        """Ask the member at `addresses` for a place beneath. Raises OSError without an answer."""
        settings = self.settings
        limit = settings.rush if addresses == self._core.root else settings.handshake
        link = await self._links.dial(addresses, settings.grace / 4 if self._welcomed else limit)
        try:
            if not self._links.listens and self.rank != LEADER:
                await self.listen([link.local_address[0]])
            self._turn += 1
            join = {
                "say": "join", "rank": self._core.rank, "turn": self._turn, "addresses": self._core.addresses,
                "avoid": avoid, "first": not self._welcomed,
            }  # fmt: skip
            words = await self._links.ask(link, join, settings.patience + settings.silence)
            return Answer(str(words.get("say")), words)
        finally:
            if link is not self._core.up:
                link.close()

    @property
    def _delay(self) -> float:
        """The seconds before a first call to the root, when all ranks call it: parents before their children."""
        return max(0, self._core.rank) * self.settings.spacing

    async def _return(self, search: Search, pause: float = 0.0) -> None:
        await asyncio.sleep(pause)
        limit = math.inf if self._on_rootless is not None else self.settings.silence + self.settings.grace
        missing = self._loop.call_later(self.settings.grace / 2, self._is_missed)
        try:
            await parent.seek(self._ask, search, limit)
        except NotJoined as error:
            self.lost(self._core.rank, str(error))
        finally:
            missing.cancel()
        self._is_found()

    def _is_missed(self) -> None:
        if self._on_rootless is not None:
            self._on_rootless(True)

    def _is_found(self) -> None:
        if self._on_rootless is not None:
            self._on_rootless(False)

    # Time.

    async def _tick(self) -> None:
        """Send heartbeats and cut silent links.

        After a stop of this process, each neighbour has the full time again.
        """
        last = self._loop.time()
        while True:
            await asyncio.sleep(self.settings.beat)
            now = self._loop.time()
            passed, last = now - last, now
            late = passed > self.settings.beat + self.settings.silence / 2
            if late:
                self._core.postpone(passed)
            for link in list(self._links.proven):
                if late:
                    link.heard = now
                if now - link.heard > self.settings.silence and not link.held:
                    self._is_silent = True
                    link.cut(f"nothing has come for {self.settings.silence:g} s")
                    self._is_silent = False
                elif now - link.sent >= self.settings.beat / 2:
                    link.send(envelope.BEAT)
            self._core.tick(now)
