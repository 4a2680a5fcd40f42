"""A connection of asyncio that carries payloads: TCP with the handshake before and frames in it.

What is sent within one turn of the event loop goes out in one write. Where the other side is slower than those whose
payloads are passed on to it, nothing more is read from these until it has caught up; where it takes nothing at all they
do not wait for it, and the link is cut when more than `most_queued` is waiting.
"""

import asyncio
import os
from collections.abc import Callable
from typing import cast

from nodectl.cluster.link.frames import BadFrame, Opener, Sealer
from nodectl.cluster.link.handshake import NONCE, Handshake, Refused

MOST_QUEUED = 32 << 20  # bytes; the largest launch on 10,000 nodes is some of them
HANDSHAKE = 5.0  # seconds
_ROOM = 1 << 20  # less is waiting: who sends much may go on
_CROWDED = 4 << 20  # more is waiting: those wait whose payloads are passed on
_STUCK = 0.5  # seconds in which nothing is taken, after which nobody waits


class Link(asyncio.Protocol):
    """One end. `proven` is called when the other side has the secret, `came` with each payload, `ended` once, with the
    reason. None of them may block.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        calls: bool,
        proven: "Callable[[Link], None]",
        came: "Callable[[Link, bytes], None]",
        ended: "Callable[[Link, str], None]",
        most_queued: int = MOST_QUEUED,
        handshake: float = HANDSHAKE,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._shake: Handshake | None = Handshake(secret, os.urandom(NONCE), calls=calls)
        self._proven, self._came, self._ended = proven, came, ended
        self._limit = handshake
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._batch: list[bytes] = []
        self._batched = 0
        self._paused = False
        self._waiting: list[asyncio.Future[None]] = []
        self._given = 0  # bytes that went to the transport
        self._left = 0  # of them were not taken by the kernel, when we last looked
        self._sources: set[Link] = set()  # from whom nothing is read because of us
        self._patience: asyncio.TimerHandle | None = None
        self._stuck = False
        self._holders = 0
        self.most_queued = most_queued
        self._many = min(_CROWDED, most_queued)
        self.heard = self.sent = self._loop.time()
        self.over = False

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the handshake."""
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=_ROOM)
        if self._shake is not None:
            transport.write(self._shake.begin())
        self._timer = self._loop.call_later(self._limit, self.cut, "the other side has not proven itself in time")

    def data_received(self, data: bytes) -> None:
        """Bytes of the handshake, then frames."""
        self.heard = self._loop.time()
        try:
            if self._shake is not None:
                data = self._shaken(self._shake, data)
            if self._opener is not None:
                self._opener.feed(data)
                while not self.over and (payload := self._opener.next()) is not None:
                    self._came(self, payload)
        except (BadFrame, Refused) as error:
            self.cut(str(error))

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self._let_go()

    def eof_received(self) -> None:
        """The other side is gone: asyncio closes."""

    def connection_lost(self, error: Exception | None) -> None:
        """The end, whoever wanted it."""
        early = ", perhaps because it has another secret" if self._shake is not None else ""
        self._end(str(error) if error else f"the other side has closed the connection{early}")

    # What its owner calls.

    def send(self, payload: bytes, source: object = None) -> None:
        """Never blocks. Nothing goes out where the link is over. `source`: the link on which it came."""
        if self.over or self._sealer is None:
            return
        frame = self._sealer.seal(payload)
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch.append(frame)
        self._batched += len(frame)
        if self._batched + self._left > self._many:  # at most so many: to know it better is work
            self._crowded(source)

    def _crowded(self, source: object) -> None:
        queued = self.queued
        if queued > self.most_queued:
            self.cut(f"{queued >> 20} MiB wait for the other side, which does not read")
        elif isinstance(source, Link) and not self._stuck and queued > _CROWDED:
            self._let_wait(source)

    @property
    def queued(self) -> int:
        """Bytes that have not gone to the kernel."""
        self._left = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._batched + self._left

    @property
    def room(self) -> bool:
        """False for who sends much, until `drained`."""
        return not self._paused and self.queued < _ROOM

    async def drained(self) -> None:
        """Returns when there is room, or the link is over."""
        while not (self.room or self.over):
            self._waiting.append(self._loop.create_future())
            await self._waiting[-1]

    @property
    def held(self) -> bool:
        """True while nothing is read from the other side, because others are slower."""
        return self._holders > 0

    @property
    def local_address(self) -> tuple[str, int]:
        """Ours, as the other side sees it."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else ("", 0)
        return name[0], name[1]

    def cut(self, reason: str) -> None:
        """Ends it at once; what waits is lost."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def close(self) -> None:
        """Ends it when what waits has gone out."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def _shaken(self, shake: Handshake, data: bytes) -> bytes:
        if (answer := shake.feed(data)) and self._transport is not None:
            self._transport.write(answer)
        if not shake.done:
            return b""
        self._shake = None
        if self._timer is not None:
            self._timer.cancel()
        self._sealer, self._opener = Sealer(shake.sending), Opener(shake.receiving)
        self._proven(self)
        return shake.rest

    def _flush(self) -> None:
        if self._batch and self._transport is not None and not self.over:
            data = b"".join(self._batch)
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
        """Whether the other side takes anything at all."""
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
        """Nothing more is read from the other side until `let_go`."""
        self._holders += 1
        if self._holders == 1 and self._transport is not None:
            self._transport.pause_reading()

    def let_go(self) -> None:
        """It is read again."""
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
