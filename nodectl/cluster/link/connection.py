"""A connection of asyncio for payloads: TCP, within it TLS, within that frames.

All payloads sent within one turn of the event loop are encrypted together, and go out in one write. Where the far side
is slower than the links whose payloads are passed on to it, nothing more is read from these links until the far side
has caught up. Where the far side reads nothing at all, these links do not wait, and the connection is cut when more
than `most_queued` bytes wait.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from nodectl.cluster.link.frames import BadFrame, FrameReader, head
from nodectl.cluster.link.tls import Refused, Tls, TlsConnection

MOST_QUEUED = 32 << 20  # bytes; the largest launch on 10,000 nodes needs some of them
HANDSHAKE = 5.0  # seconds
_ROOM = 1 << 20  # bytes; with less in the queue, a sender of much data may go on
_CROWDED = 4 << 20  # bytes; with more in the queue, the links whose payloads are passed on wait
_STUCK = 0.5  # seconds in which the far side reads nothing, after which no link waits for it


class Link(asyncio.Protocol):
    """An end of a connection.

    Calls `proven` when the far side has proven that it is of the cluster, `came` with each payload, `ended` once, with
    the reason. None of them may block.
    """

    def __init__(
        self,
        tls: Tls,
        *,
        calls: bool,
        proven: "Callable[[Link], None]",
        came: "Callable[[Link, bytes], None]",
        ended: "Callable[[Link, str], None]",
        most_queued: int = MOST_QUEUED,
        handshake: float = HANDSHAKE,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._tls = TlsConnection(tls, calls=calls)
        self._frames = FrameReader()
        self._calls = calls
        self._proven, self._came, self._ended = proven, came, ended
        self._limit = handshake
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._batch: list[bytes] = []
        self._batched = 0
        self._paused = False
        self._waiting: list[asyncio.Future[None]] = []
        self._given = 0  # bytes written to the transport
        self._left = 0  # bytes of these that the kernel had not taken when we last looked
        self._sources: set[Link] = set()  # links from which nothing is read because of this one
        self._patience: asyncio.TimerHandle | None = None
        self._stuck = False
        self._holders = 0
        self.most_queued = most_queued
        self._many = min(_CROWDED, most_queued)
        self.heard = self.sent = self._loop.time()
        self.over = False

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=_ROOM)
        if self._calls:
            self._shake()
        self._timer = self._loop.call_later(self._limit, self.cut, "the other side has not proven itself in time")

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the handshake, then of frames."""
        self.heard = self._loop.time()
        self._tls.feed(data)
        try:
            if self._tls.is_proven or self._shake():
                self._frames.feed(self._tls.read())
                while not self.over and (payload := self._frames.next()) is not None:
                    self._came(self, payload)
        except (BadFrame, Refused) as error:
            self.cut(str(error))

    def pause_writing(self) -> None:
        """Stop writing: the kernel's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Write again: the kernel's buffer has room."""
        self._paused = False
        self._let_go()

    def eof_received(self) -> None:
        """Let asyncio close the connection: the far side is gone."""

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end of the connection, on either side's initiative."""
        early = ", perhaps because it has another secret" if not self._tls.is_proven else ""
        self._end(str(error) if error else f"the other side has closed the connection{early}")

    # Called by the owner.

    def send(self, payload: bytes, source: object = None) -> None:
        """Send a payload without blocking. A closed link sends nothing.

        `source`: the link from which the payload came.
        """
        if self.over or not self._tls.is_proven:
            return
        length = head(payload)
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch += (length, payload)
        self._batched += len(length) + len(payload)
        if self._batched + self._left > self._many:  # an upper bound: the exact number costs a call
            self._crowded(source)

    def _crowded(self, source: object) -> None:
        queued = self.queued
        if queued > self.most_queued:
            self.cut(f"{queued >> 20} MiB wait for the other side, which does not read")
        elif isinstance(source, Link) and not self._stuck and queued > _CROWDED:
            self._let_wait(source)

    @property
    def queued(self) -> int:
        """The number of bytes not yet written to the kernel."""
        self._left = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._batched + self._left

    @property
    def room(self) -> bool:
        """False if a sender of much data should wait for `drained`."""
        return not self._paused and self.queued < _ROOM

    async def drained(self) -> None:
        """Wait until there is room, or the link is closed."""
        while not (self.room or self.over):
            self._waiting.append(self._loop.create_future())
            await self._waiting[-1]

    @property
    def held(self) -> bool:
        """True while nothing is read from the far side, because another link is slower."""
        return self._holders > 0

    @property
    def local_address(self) -> tuple[str, int]:
        """The address of this side, as seen by the far side."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else ("", 0)
        return name[0], name[1]

    def cut(self, reason: str) -> None:
        """Close the link at once; queued data is lost."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def close(self) -> None:
        """Close the link after queued data has gone out."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def _shake(self) -> bool:
        """Go on with the handshake; return True when the far side is proven. Raises Refused."""
        try:
            is_proven = self._tls.shake()
        finally:
            if self._transport is not None:
                self._transport.write(self._tls.outgoing())  # where it has failed, the far side is told
        if is_proven:
            if self._timer is not None:
                self._timer.cancel()
            self._proven(self)
        return is_proven

    def _flush(self) -> None:
        if self._batch and self._transport is not None and not self.over:
            data = self._tls.seal(b"".join(self._batch))
            self._batch, self._batched = [], 0
            self.sent = self._loop.time()
            self._given += len(data)
            self._transport.write(data)
            self._left = self._transport.get_write_buffer_size()
            self._let_go()

    def _let_go(self) -> None:
        if self._waiting and (self.room or self.over):
            for one in self._waiting:
                if not one.done():
                    one.set_result(None)
            self._waiting = []
        if self.room or self.over:
            self._stuck = False
            self._release()

    def _let_wait(self, source: "Link") -> None:
        if source in self._sources:
            return
        self._sources.add(source)
        source.hold()
        if self._patience is None:
            self._patience = self._loop.call_later(_STUCK, self._look, self._taken)

    def _look(self, before: int) -> None:
        """Release the waiting links if the far side has read nothing since `before`."""
        self._patience = None
        if self._taken == before:
            self._stuck = True
            self._release()
        elif self._sources:
            self._patience = self._loop.call_later(_STUCK, self._look, self._taken)

    def _release(self) -> None:
        sources, self._sources = self._sources, set()
        for source in sources:
            source.let_go()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    @property
    def _taken(self) -> int:
        return self._given + self._batched - self.queued

    def hold(self) -> None:
        """Read nothing more from the far side until `let_go`."""
        self._holders += 1
        if self._holders == 1 and self._transport is not None:
            self._transport.pause_reading()

    def let_go(self) -> None:
        """Read from the far side again."""
        self._holders -= 1
        if self._holders == 0 and self._transport is not None:
            self.heard = self._loop.time()
            self._transport.resume_reading()

    def _end(self, reason: str) -> None:
        if self.over:
            return
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        self._batch, self._batched = [], 0
        self._let_go()
        self._ended(self, reason)
