"""A terminal on another node: its packets wait for who does not read them, and nobody keeps many of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from nodectl.cluster.agent.channel import Channel, Header
from nodectl.cluster.agent.relay import Relay

ENOUGH = 20.0  # seconds, for a machine that is busy
PACKET = b"o\0\0\0\0" + b"x" * 4000
MOST = 32


class Ends:
    """Two agents: the one of the node that has the task, and the one of the viewer. Messages arrive later, in order."""

    def __init__(self) -> None:
        self.lost = False
        self.flushed = [asyncio.Event(), asyncio.Event()]
        self.outer: list[socket.socket] = []
        self.relays: list[Relay] = []
        self.channels = [self._channel(0), self._channel(1)]
        for end in range(2):
            outer, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            outer.setblocking(False)
            self.outer.append(outer)
            self.relays.append(Relay(inner.detach(), self.channels[end], self.flushed[end].set))
        self.channels[0].say(None)
        for relay in self.relays:
            relay.begin()

    def _channel(self, end: int) -> Channel:
        def take(said: str | None) -> None:
            self.relays[end].take(said)

        return Channel(lambda header: self._post(1 - end, header), take, late=True)

    def _post(self, to: int, header: Header) -> None:
        if not self.lost:
            asyncio.get_running_loop().call_soon(self._hear, to, header)

    def _hear(self, to: int, header: Header) -> None:
        self.channels[to].hear(header)
        self.relays[to].begin()

    async def type(self, end: int, packet: bytes) -> bool:
        """False when there has been no room for some time."""
        for _ in range(200):
            try:
                self.outer[end].send(packet)
            except BlockingIOError:
                await asyncio.sleep(0.001)
            else:
                return True
        return False

    async def read(self, end: int) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.outer[end], 70_000)

    def waiting(self) -> int:
        """Packets in both agents."""
        return sum(len(relay._queue) + channel.kept for relay, channel in zip(self.relays, self.channels, strict=True))


def run(work: Callable[[Ends], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(ENOUGH):
            await work(Ends())

    asyncio.run(bounded())


def test_a_viewer_that_never_reads_makes_the_task_wait() -> None:
    async def work(ends: Ends) -> None:
        given = 0
        while await ends.type(0, PACKET):
            given += 1
            assert ends.waiting() <= 2 * MOST, given
        for _ in range(given):  # and nothing is lost
            assert await ends.read(1) == PACKET
        assert await ends.type(0, b"more")
        assert await ends.read(1) == b"more"

    run(work)


def test_a_task_that_never_reads_makes_who_types_wait() -> None:
    async def work(ends: Ends) -> None:
        while await ends.type(1, PACKET):
            assert ends.waiting() <= 2 * MOST

    run(work)


def test_packets_outlive_links_that_are_cut() -> None:
    async def work(ends: Ends) -> None:
        for number in range(300):
            ends.lost = number % 7 < 3
            assert await ends.type(0, b"%d" % number)
            if number % 7 == 3:
                for channel in ends.channels:
                    channel.ask()
            if number % 10 == 9:
                ends.lost = False
                for channel in ends.channels:
                    channel.ask()
                assert [await ends.read(1) for _ in range(10)] == [b"%d" % one for one in range(number - 9, number + 1)]

    run(work)


def test_the_last_words_are_said_to_be_taken_when_they_are() -> None:
    async def work(ends: Ends) -> None:
        count = 0
        while await ends.type(0, PACKET):
            count += 1
        ends.outer[0].close()
        ends.relays[0].finish()
        await asyncio.sleep(0.01)
        assert ends.channels[0].kept, "the viewer has not read them"
        assert not ends.flushed[1].is_set()
        for _ in range(count):
            assert await ends.read(1) == PACKET
        assert await ends.read(1) == b""
        await ends.flushed[1].wait()
        while ends.channels[0].kept:  # noqa: ASYNC110  # of what is looked at nobody tells
            await asyncio.sleep(0.001)

    run(work)


def test_a_viewer_that_has_gone_keeps_nobody_waiting() -> None:
    async def work(ends: Ends) -> None:
        ends.outer[1].close()
        assert await ends.read(0) == b"", "the step is told"
        for _ in range(3 * MOST):
            try:
                assert await ends.type(0, PACKET)
            except BrokenPipeError:
                return  # it knows

    run(work)
