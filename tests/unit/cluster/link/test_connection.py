"""Connections over real TCP: strangers cost little; who does not read costs little, and nobody else's time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from nodectl.cluster.link import connection
from nodectl.cluster.link.connection import Link
from nodectl.cluster.link.frames import LONGEST
from nodectl.cluster.link.tls import Tls, TlsConnection
from unit.cluster.mesh.members import played, until
from unit.cluster.overhearing import relayed

OURS, WRONG = Tls(b"s" * 32), Tls(b"w" * 32)


class End:
    """One end of a link, and what it has heard."""

    def __init__(self, tls: Tls = OURS, *, calls: bool, most_queued: int = 32 << 20, handshake: float = 30) -> None:
        self.came: list[bytes] = []
        self.proven = False
        self.why = ""
        self.link = Link(
            tls,
            calls=calls,
            proven=lambda _: setattr(self, "proven", True),
            came=lambda _, payload: self.came.append(payload),
            ended=lambda _, why: setattr(self, "why", why),
            most_queued=most_queued,
            handshake=handshake,
        )


@contextlib.asynccontextmanager
async def listening(**settings: float) -> AsyncIterator[tuple[int, list[End]]]:
    """A port, and an end for each who connects to it."""
    ends: list[End] = []

    def accepted() -> Link:
        ends.append(End(calls=False, **settings))  # type: ignore[arg-type]
        return ends[-1].link

    server = await asyncio.get_running_loop().create_server(accepted, "127.0.0.1", 0, backlog=1000)
    try:
        yield server.sockets[0].getsockname()[1], ends
    finally:
        server.close()
        for end in ends:
            end.link.cut("over")


async def call(port: int, tls: Tls = OURS) -> End:
    end = End(tls, calls=True)
    await asyncio.get_running_loop().create_connection(lambda: end.link, "127.0.0.1", port)
    return end


async def both(port: int, ends: list[End]) -> tuple[End, End]:
    """A proven link."""
    one = await call(port)
    await until(lambda: one.proven and ends[-1].proven)
    return one, ends[-1]


def test_payloads_of_every_size_pass_both_ways() -> None:
    async def play() -> None:
        async with listening() as (port, ends):
            one, other = await both(port, ends)
            payloads = [b"", b"x", bytes(100_000), bytes(LONGEST)]
            for payload in payloads:
                one.link.send(payload)
                other.link.send(payload)
            await until(lambda: len(one.came) == len(other.came) == len(payloads))
            assert one.came == other.came == payloads
            one.link.close()
            await until(lambda: other.why)

    played(play())


def test_what_is_sent_in_one_turn_goes_out_in_one_write() -> None:
    async def play() -> None:
        async with listening() as (port, ends):
            one, other = await both(port, ends)
            writes: list[bytes] = []
            transport = one.link._transport
            assert transport is not None
            write, transport.write = transport.write, writes.append  # type: ignore[method-assign, assignment]
            for number in range(100):
                one.link.send(b"%d" % number)
            await asyncio.sleep(0)
            assert len(writes) == 1
            write(writes[0])
            await until(lambda: len(other.came) == 100)
            one.link.cut("over")

    played(play())


def test_wrong_secret_is_refused_and_both_know_why() -> None:
    async def play() -> None:
        async with listening() as (port, ends):
            one = await call(port, WRONG)
            await until(lambda: one.why and ends and ends[0].why)
            assert "secret" in one.why
            assert "secret" in ends[0].why
            assert not one.proven
            assert not ends[0].proven

    played(play())


def hello() -> bytes:
    """A hello with the right name, as a stranger may have read it on the network."""
    one = TlsConnection(OURS, calls=True)
    one.shake()
    return one.outgoing()


def test_strangers_who_say_nothing_or_rubbish_are_cut() -> None:
    async def play() -> None:
        async with listening(handshake=0.2) as (port, ends):
            strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
            words = [b"", b"GET / HTTP/1.1\r\n\r\n", b"nodectl link 0001\n", hello()[:-1], hello()]
            for number, stranger in enumerate(strangers):
                stranger.sendall(words[number % len(words)])
            await until(lambda: len(ends) == len(strangers) and all(end.why for end in ends))
            assert not any(end.proven or end.came for end in ends)
            for stranger in strangers:
                stranger.close()

    played(play())


def test_slow_stranger_has_no_more_time_than_a_silent_one() -> None:
    async def play() -> None:
        async with listening(handshake=0.3) as (port, ends):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                words = iter(hello())
                with contextlib.suppress(OSError):
                    while not (ends and ends[0].why):
                        stranger.send(bytes([next(words)]))
                        await asyncio.sleep(0.05)
            assert "in time" in ends[0].why

    played(play())


def test_stranger_that_sends_without_end_is_cut_and_holds_up_no_member() -> None:
    async def play() -> None:
        async with listening() as (port, ends):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            record = b"\x16\x03\x01" + (16_000).to_bytes(2, "big")
            writer.write(record + b"\x01" + (100_000).to_bytes(3, "big") + bytes(15_996))
            await until(lambda: ends)
            await both(port, ends)
            for _ in range(5):
                writer.write(record + bytes(16_000))
            await until(lambda: "more than a handshake takes" in ends[0].why)
            writer.close()

    played(play())


def test_who_does_not_read_is_cut_when_too_much_waits() -> None:
    async def play() -> None:
        async with listening(most_queued=1 << 20) as (port, ends):
            one, other = await both(port, ends)
            one.link.hold()
            sent = 0
            while not other.why:
                other.link.send(bytes(65536))
                sent += 65536
                assert other.link.queued <= (1 << 20) + 65536 + 200  # and the heads of its records
                await asyncio.sleep(0)
                assert sent < 64 << 20
            assert "does not read" in other.why
            one.link.cut("over")

    played(play())


def test_who_sends_much_can_wait_until_there_is_room() -> None:
    async def play() -> None:
        async with listening() as (port, ends):
            one, other = await both(port, ends)
            one.link.hold()
            while one.link.held and other.link.room:
                other.link.send(bytes(65536))
                await asyncio.sleep(0)
            waits = asyncio.ensure_future(other.link.drained())
            await asyncio.sleep(0)
            assert not waits.done()
            one.link.let_go()
            await waits
            assert other.link.room
            one.link.hold()
            while other.link.room:
                other.link.send(bytes(65536))
                await asyncio.sleep(0)
            waits = asyncio.ensure_future(other.link.drained())
            other.link.cut("over")
            await waits

    played(play())


def test_source_of_a_slow_one_waits_and_of_a_stuck_one_does_not() -> None:
    async def play() -> None:
        async with listening() as (port, ends):
            slow, to_slow = await both(port, ends)
            source, from_source = await both(port, ends)
            slow.link.hold()
            while not from_source.link.held:
                to_slow.link.send(bytes(1 << 20), from_source.link)
                await asyncio.sleep(0)
            assert to_slow.link.queued < 8 << 20
            await until(lambda: not from_source.link.held)  # nothing was taken for a while
            to_slow.link.send(bytes(10), from_source.link)
            assert not from_source.link.held
            source.link.send(b"heard")
            await until(lambda: from_source.came == [b"heard"])
            slow.link.let_go()
            await until(lambda: to_slow.link.room)
            slow.link.hold()
            while not from_source.link.held:  # it has caught up: it is waited for again
                to_slow.link.send(bytes(1 << 20), from_source.link)
                await asyncio.sleep(0)
            slow.link.let_go()
            await until(lambda: not from_source.link.held)

    played(play())


def test_nobody_waits_for_a_link_that_is_over() -> None:
    async def play() -> None:
        async with listening() as (port, ends):
            slow, to_slow = await both(port, ends)
            _, from_source = await both(port, ends)
            slow.link.hold()
            while not from_source.link.held:
                to_slow.link.send(bytes(1 << 20), from_source.link)
                await asyncio.sleep(0)
            to_slow.link.cut("over")
            assert not from_source.link.held

    played(play())


def test_room_is_far_below_what_a_link_is_cut_for() -> None:
    assert connection._ROOM < connection._CROWDED < connection.MOST_QUEUED


def test_reader_of_the_network_learns_nothing_of_the_payloads() -> None:
    heard = bytearray()
    words = [b"TOKEN=an environment variable", b"the output of a task, " * 20_000]

    async def play() -> None:
        async with listening() as (port, ends):
            relay = await relayed("127.0.0.1", port, heard.extend)
            one, other = await both(relay.sockets[0].getsockname()[1], ends)
            for payload in words:
                one.link.send(payload)
                other.link.send(payload)
            await until(lambda: one.came == other.came == words)
            one.link.close()
            await until(lambda: other.why)
            relay.close()
            await relay.wait_closed()

    played(play())
    assert len(heard) > 2 * sum(map(len, words))
    assert not any(word in heard for word in (b"TOKEN", b"variable", b"output", b"task"))
