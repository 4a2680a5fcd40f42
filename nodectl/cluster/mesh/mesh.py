"""A member of the cluster in asyncio: what the agent and the leader send by, and are told by.

    mesh = Mesh(rank, names, secret, said={"cpus": 8})
    mesh.handle("start", started)
    await mesh.listen(["0.0.0.0"])          the root: its addresses go to all others
    await mesh.join([("n1", 34567)])        all others; the leader joins the agent that started it
    mesh.send(LEADER, "begun", {"job": 7, "step": 0})

What is sent before `join` has returned is lost.
"""

import asyncio
import contextlib
import functools
import resource
import sys
import time
from asyncio import staggered
from collections.abc import Callable, Mapping, Sequence

from nodectl.cluster import tree
from nodectl.cluster.link.connection import Link
from nodectl.cluster.mesh import envelope, parent
from nodectl.cluster.mesh.core import Core
from nodectl.cluster.mesh.envelope import Header, Message
from nodectl.cluster.mesh.parent import Answer
from nodectl.cluster.mesh.roll import Addresses
from nodectl.cluster.mesh.root import Root
from nodectl.cluster.mesh.search import NotJoined, Search
from nodectl.cluster.mesh.settings import DEFAULT, Settings
from nodectl.cluster.mesh.words import BadWords

__all__ = ["LEADER", "Header", "Mesh", "NotJoined", "Settings"]

LEADER = tree.LEADER
_SAID = "mesh.said"  # an agent's words of its machine, to the leader
_BACKLOG = 4096  # who waits in the kernel
_AT_ONCE = 128  # are taken from there, before others are heard again
_STAGGER = 0.25  # seconds, after which the next address is tried, too
Handler = Callable[[int, Header, bytes], None]


class Mesh:
    """`said` is what the leader is told of this machine when we have joined, and each new leader again."""

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        secret: bytes,
        *,
        said: Header | None = None,
        settings: Settings = DEFAULT,
    ) -> None:
        self.rank = rank
        self.names = names
        self.settings = settings
        self._said = said or {}
        self._secret = secret
        self._loop = asyncio.get_running_loop()
        start = time.monotonic_ns()  # higher than all that an earlier leader has used, which ran on this machine, too
        self._turn = start if rank == LEADER else 0
        self._core = (
            Root(len(names), settings, self, start)
            if rank == tree.ROOT
            else Core(rank, len(names), settings, self, start)
        )
        self._handlers: dict[str, Handler] = {_SAID: self._introduce}
        self._on_lost: list[Callable[[int, str], None]] = []
        self._on_joined: list[Callable[[int, Header], None]] = []
        self._on_resumed: list[Callable[[int], None]] = []
        self._introduced: set[int] = set()
        self._servers: list[asyncio.Server] = []
        self._strangers: dict[Link, None] = {}
        self._most_strangers = min(settings.most_strangers, _descriptors() // 4)
        self._links: set[Link] = set()
        self._asked: dict[Link, asyncio.Future[Answer]] = {}
        self._fresh: set[Link] = set()  # we have dialed them, and not yet asked anything
        self._welcomed = False
        self._closed = False
        self._is_silent = False  # while a link is cut over which nothing comes: nobody there answers, either
        self._returning: asyncio.Task[None] | None = None
        self._ticking = self._loop.create_task(self._tick())

    # What others use.

    def handle(self, kind: str, handler: Handler) -> None:
        """`handler(sender's rank, header, body)` is called with each message of this kind. It must not block."""
        self._handlers[kind] = handler

    def on_lost(self, told: Callable[[int, str], None]) -> None:
        """`told(rank, why)`: a node is gone for good. Our own rank: the others have given us up, or we cannot reach
        them; nothing that is sent arrives any more.
        """
        self._on_lost.append(told)

    def on_joined(self, told: Callable[[int, Header], None]) -> None:
        """At the leader, once for each rank: what its agent said of its machine."""
        self._on_joined.append(told)

    def on_resumed(self, told: Callable[[int], None]) -> None:
        """`told(rank)`: what was on its way between us and that rank may be lost, in both directions; from now on
        messages arrive again. Told for those only with whom there was something. LEADER: or it is another one.
        """
        self._on_resumed.append(told)

    def send(self, to: int, kind: str, header: Header, body: bytes = b"") -> None:
        """Never blocks. Arrives once, after what was sent before, or not at all. Raises ValueError where it is longer
        than a frame, 4 MiB.
        """
        self._core.send(to, kind, header, body)

    def send_each(self, kind: str, common: Header, each: Mapping[int, object], body: bytes = b"") -> None:
        """To every rank in `each`: it gets the header {**common, "part": its own part}."""
        self._core.send_each(kind, common, each, body)

    def give_up(self, rank: int, why: str) -> None:
        """The engine says that a node is lost."""
        self._core.give_up(rank, why, self._loop.time())

    def room(self, to: int) -> bool:
        """False for who sends much, until `drained`."""
        link = self._core.hop(to)
        return not isinstance(link, Link) or link.room

    async def drained(self, to: int) -> None:
        """Returns when there is room on the way to a rank."""
        link = self._core.hop(to)
        if isinstance(link, Link):
            await link.drained()

    @property
    def has_leader(self) -> bool:
        """At the root: whether a way leads to the leader."""
        return self._core.hop(LEADER) is not None

    async def listen(self, hosts: Sequence[str], port: int = 0) -> list[tuple[str, int]]:
        """The addresses on which others reach us. `hosts` are numbers, as all addresses are: for a name asyncio would
        ask in a thread. Raises OSError.
        """
        for host in hosts:
            server = await self._loop.create_server(self._stranger, host, port, backlog=_AT_ONCE)
            for sock in server.sockets:
                with sock.dup() as listening:
                    listening.listen(_BACKLOG)
            self._servers.append(server)
        found = [sock.getsockname()[:2] for server in self._servers for sock in server.sockets]
        self._core.addresses = tuple(found)
        return found

    async def join(self, at: Sequence[tuple[str, int]], *, limit: float = 30.0) -> None:
        """Returns when we stand in the tree. `at`: the root's addresses. Raises NotJoined."""
        self._core.root = tuple(at)
        await parent.seek(self._ask, Search([(tree.ROOT, tuple(at))]), limit)

    async def close(self) -> None:
        """Ends everything."""
        self._leave()
        for task in (self._ticking, self._returning):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _leave(self) -> None:
        self._closed = True
        for server in self._servers:
            server.close()
        for link in [*self._links, *self._strangers]:
            link.close()

    # What the core tells.

    def message(self, message: Message) -> None:
        """One for us has come."""
        handler = self._handlers.get(message.kind)
        if handler is None:
            self._loop.call_exception_handler({"message": f"nobody handles a message {message.kind!r}"})
            return
        self._call(f"a message {message.kind!r}", handler, message.sender, message.header, message.body)

    def _call(self, what: str, told: Callable[..., None], *words: object) -> None:
        try:
            told(*words)
        except Exception as error:  # whose mistake it is: no reason to cut a link
            self._loop.call_exception_handler({"message": what, "exception": error})

    def own(self, message: Message) -> None:
        """One from us to us, later as all others."""
        self._loop.call_soon(self.message, message)

    def lost(self, rank: int, why: str) -> None:
        """A node is gone for good. Where it is ours, those beneath us stand elsewhere from now on."""
        if rank == self.rank:
            self._leave()
        for told in self._on_lost:
            self._call("a lost node", told, rank, why)

    def resumed(self, rank: int) -> None:
        """What was on its way may be lost."""
        if rank == LEADER:
            self.leader()
        for told in self._on_resumed:
            self._call("a way that is whole again", told, rank)

    def leader(self) -> None:
        """Whoever leads is told of our machine."""
        if self.rank != LEADER:
            self.send(LEADER, _SAID, self._said)

    def _introduce(self, rank: int, said: Header, _: bytes) -> None:
        """At the leader: an agent's words, which may come again after a link was cut."""
        if rank not in self._introduced:
            self._introduced.add(rank)
            for told in self._on_joined:
                self._call("a node that has joined", told, rank, said)

    def orphaned(self, why: str) -> None:
        """We look for another parent, or for the same again where it has only closed the link."""
        if not self._closed:
            above = [one for one in self._core.above if one[0] not in self._core.gone]
            silent = [above[0][0]] if self._is_silent and above else []
            self._returning = self._loop.create_task(self._return(Search(above, silent)))

    # Links.

    def _stranger(self) -> Link:
        """Whoever connects. Where there are too many who prove nothing, the one that has had the most time goes."""
        if len(self._strangers) >= self._most_strangers:
            next(iter(self._strangers)).cut("there are too many who do not prove themselves")
        link = self._link(calls=False, proven=self._proven)
        self._strangers[link] = None
        return link

    def _link(self, *, calls: bool, proven: Callable[[Link], None]) -> Link:
        return Link(
            self._secret,
            calls=calls,
            proven=proven,
            came=self._came,
            ended=self._ended,
            most_queued=self.settings.most_queued,
            handshake=self.settings.handshake,
        )

    def _proven(self, link: Link) -> None:
        self._strangers.pop(link, None)
        self._links.add(link)

    def _came(self, link: Link, payload: bytes) -> None:
        try:
            if link not in self._asked:
                self._core.heard(link, payload, self._loop.time())
            elif payload != envelope.BEAT:
                self._answered(link, envelope.control_words(payload))
        except (envelope.BadMessage, BadWords, ValueError) as error:
            link.cut(str(error))

    def _answered(self, link: Link, words: Header) -> None:
        answer = self._asked.pop(link)
        say = str(words.get("say"))
        if say == "welcome":
            self._welcomed = True
            self._core.welcomed(link, words)
        if not answer.done():
            answer.set_result(Answer(say, words))

    def _ended(self, link: Link, why: str) -> None:
        self._strangers.pop(link, None)
        self._links.discard(link)
        answer = self._asked.pop(link, None)
        if answer is not None and not answer.done():
            answer.set_exception(ConnectionError(why))
        elif not self._closed:
            self._core.ended(link, why, self._loop.time())

    # The parent.

    async def _ask(self, addresses: Addresses, avoid: list[int]) -> Answer:
        """Raises OSError where nobody answers."""
        link = await self._dial_one_of(addresses)
        try:
            return await self._ask_to_join(link, avoid)
        finally:
            if link is not self._core.up:
                link.close()

    async def _dial_one_of(self, addresses: Addresses) -> Link:
        """The first that answers; one that is slow does not keep the next from being tried. Raises OSError."""
        dials = [functools.partial(self._dial, host, port) for host, port in addresses]
        link: Link | None = None
        try:
            link, _, errors = await staggered.staggered_race(dials, _STAGGER)
        finally:
            late, self._fresh = self._fresh - {link}, set()
            for one in late:
                one.close()
        if link is not None:
            return link
        raise next((error for error in errors if isinstance(error, OSError)), OSError("no address is known"))

    async def _dial(self, host: str, port: int) -> Link:
        """A proven link. Raises OSError."""
        proven: asyncio.Future[Answer] = self._loop.create_future()

        def is_proven(link: Link) -> None:
            self._links.add(link)
            self._fresh.add(link)
            if not proven.done():
                proven.set_result(Answer("", {}))

        link = self._link(calls=True, proven=is_proven)
        self._asked[link] = proven
        returning = self._welcomed  # there is little time
        try:
            async with asyncio.timeout(self.settings.grace / 4 if returning else self.settings.handshake):
                await self._loop.create_connection(lambda: link, host, port)
                await proven
        except TimeoutError:
            self._asked.pop(link, None)
            link.cut("it does not answer")
            raise ConnectionError(f"{host}:{port} does not answer") from None
        except asyncio.CancelledError:
            self._asked.pop(link, None)
            link.cut("another address has answered")
            raise
        except OSError as error:
            raise ConnectionError(f"{host}:{port}: {error}") from None
        finally:
            self._asked.pop(link, None)
        return link

    async def _ask_to_join(self, link: Link, avoid: list[int]) -> Answer:
        if not self._servers and self.rank != LEADER:
            await self.listen([link.local_address[0]])
        self._turn += 1
        words = {
            "say": "join",
            "rank": self.rank,
            "turn": self._turn,
            "addresses": self._core.addresses,
            "avoid": avoid,
            "first": not self._welcomed,
        }
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._asked[link] = answer
        link.send(envelope.control(words))
        try:
            async with asyncio.timeout(self.settings.patience + self.settings.silence):
                return await answer
        except TimeoutError:
            raise ConnectionError("it does not answer") from None
        finally:
            self._asked.pop(link, None)

    async def _return(self, search: Search) -> None:
        try:
            await parent.seek(self._ask, search, self.settings.silence + self.settings.grace)
        except NotJoined as error:
            self.lost(self.rank, str(error))

    # Time.

    async def _tick(self) -> None:
        """Heartbeats, and who has none. Where we were stopped ourselves, the others get their time again."""
        last = self._loop.time()
        while True:
            await asyncio.sleep(self.settings.beat)
            now = self._loop.time()
            passed, last = now - last, now
            late = passed > self.settings.beat + self.settings.silence / 2
            if late:
                self._core.postpone(passed)
            for link in list(self._links):
                if late:
                    link.heard = now
                if now - link.heard > self.settings.silence and not link.held:
                    self._is_silent = True
                    link.cut(f"nothing has come for {self.settings.silence:g} s")
                    self._is_silent = False
                elif now - link.sent >= self.settings.beat / 2:
                    link.send(envelope.BEAT)
            self._core.tick(now)


def _descriptors() -> int:
    """How many we may have. Steps and commands need some, whoever connects."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
