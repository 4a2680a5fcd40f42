"""The links of a member: incoming and outgoing connections, both sides proven to be of the cluster."""

import asyncio
import functools
import resource
import sys
from asyncio import staggered
from collections.abc import Callable, Sequence

from nodectl.cluster.link.connection import Link
from nodectl.cluster.link.tls import Tls
from nodectl.cluster.mesh import envelope
from nodectl.cluster.mesh.envelope import Header
from nodectl.cluster.mesh.roll import Addresses
from nodectl.cluster.mesh.settings import Settings

_BACKLOG = 4096  # connections that wait in the kernel
_AT_ONCE = 128  # connections accepted in a row, before the loop reads from links again
_STAGGER = 0.25  # seconds before the next address is tried, too


class Links:
    """The links of a member, which accept only processes with the same `tls`.

    Calls `answered` with the answer to an `ask`, `came` with every other payload, `ended` with each closed link.
    """

    def __init__(
        self, tls: Tls, settings: Settings, came: Callable[[Link, bytes], None],
        answered: Callable[[Link, Header], None], ended: Callable[[Link, str], None],
    ) -> None:  # fmt: skip
        self._tls = tls
        self._settings = settings
        self._on_came = came
        self._on_answered = answered
        self._on_ended = ended
        self._loop = asyncio.get_running_loop()
        self._servers: list[asyncio.Server] = []
        self.strangers: dict[Link, None] = {}
        self._most_strangers = min(settings.most_strangers, _descriptors() // 4)
        self.proven: set[Link] = set()
        self._asked: dict[Link, asyncio.Future[Header]] = {}
        self._fresh: set[Link] = set()  # links that we have dialed, and over which we have not yet asked anything

    async def listen(self, hosts: Sequence[str], port: int) -> list[tuple[str, int]]:
        """Listen on `hosts`; return the addresses. Raises OSError."""
        for host in hosts:
            server = await self._loop.create_server(self._stranger, host, port, backlog=_AT_ONCE)
            for sock in server.sockets:
                with sock.dup() as listening:
                    listening.listen(_BACKLOG)
            self._servers.append(server)
        return [sock.getsockname()[:2] for server in self._servers for sock in server.sockets]

    @property
    def listens(self) -> bool:
        """True if this member listens for connections."""
        return bool(self._servers)

    def close(self) -> None:
        """Close all links and listening sockets, after queued data has gone out."""
        for server in self._servers:
            server.close()
        for link in [*self.proven, *self.strangers]:
            link.close()

    def begin_anew(self, tls: Tls) -> None:
        """Use `tls` from now on. Earlier links are ignored and closed."""
        self._tls = tls
        why = "it is of an earlier tree"
        links, self.proven = self.proven, set()
        for link in links:
            link.close()
            self._loop.call_later(self._settings.grace, link.cut, why)
        for link in list(self.strangers):
            link.cut(why)

    def _stranger(self) -> Link:
        """Return the link for a new connection. With too many unproven connections, cut the oldest."""
        if len(self.strangers) >= self._most_strangers:
            next(iter(self.strangers)).cut("there are too many who do not prove themselves")
        link = self._link(self._proven, self._settings.handshake, calls=False)
        self.strangers[link] = None
        return link

    def _link(self, proven: Callable[[Link], None], seconds: float, *, calls: bool) -> Link:
        return Link(
            self._tls, calls=calls, proven=proven, came=self._came, ended=self._ended,
            most_queued=self._settings.most_queued, handshake=seconds,
        )  # fmt: skip

    def _proven(self, link: Link) -> None:
        self.strangers.pop(link, None)
        self.proven.add(link)

    def _came(self, link: Link, payload: bytes) -> None:
        if link not in self.proven:
            return  # of an earlier tree
        try:
            if link not in self._asked:
                self._on_came(link, payload)
            elif payload != envelope.BEAT:
                words = envelope.control_words(payload)
                answer = self._asked.pop(link)
                self._on_answered(link, words)
                if not answer.done():
                    answer.set_result(words)
        except (envelope.BadMessage, ValueError) as error:
            link.cut(str(error))

    def _ended(self, link: Link, why: str) -> None:
        self.strangers.pop(link, None)
        self.proven.discard(link)
        answer = self._asked.pop(link, None)
        if answer is None:
            self._on_ended(link, why)
        elif not answer.done():
            answer.set_exception(ConnectionError(why))

    # Outgoing links.

    async def dial(self, addresses: Addresses, seconds: float) -> Link:
        """Return a link to the first address with an answer. Raises OSError.

        The addresses are tried at a short interval, without waiting for a slow one.
        """
        dials = [functools.partial(self._dial, host, port, seconds) for host, port in addresses]
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

    async def _dial(self, host: str, port: int, seconds: float) -> Link:
        """Connect to an address and return the proven link. Raises OSError."""
        proven: asyncio.Future[Header] = self._loop.create_future()

        def is_proven(link: Link) -> None:
            self.proven.add(link)
            self._fresh.add(link)
            if not proven.done():
                proven.set_result({})

        link = self._link(is_proven, seconds, calls=True)
        self._asked[link] = proven
        try:
            async with asyncio.timeout(seconds):
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

    async def ask(self, link: Link, words: Header, seconds: float) -> Header:
        """Send a control message and return the answer. Raises OSError."""
        answer: asyncio.Future[Header] = self._loop.create_future()
        self._asked[link] = answer
        link.send(envelope.control(words))
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise ConnectionError("it does not answer") from None
        finally:
            self._asked.pop(link, None)


def _descriptors() -> int:
    """Return the limit of open descriptors. Links may use a part only: steps and commands need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
