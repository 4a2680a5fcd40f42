"""When a client's descriptors may be sent to its stepd: not while daemon or forkserver could have to close them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

from nodectl.model.wire import lean_json
from nodectl.service.config_file.reader import load
from nodectl.service.daemon.processes.forkserver_channel import ForkserverChannel


class Orders:
    """Orders with a descriptor each; which of these were still open here when their answers were told."""

    def __init__(self, channel: ForkserverChannel) -> None:
        self._channel = channel
        self.told: list[bool] = []
        self.number = 0

    def submit(self) -> None:
        fd, writer = os.pipe()
        os.set_blocking(writer, False)

        def when_answered() -> None:
            try:
                os.write(writer, b"x")
            except BrokenPipeError:
                self.told.append(False)
            else:
                self.told.append(True)
            os.close(writer)

        self.number += 1
        order = {"step": f"{self.number}.0", "room": "x" * 4096}
        self._channel.submit(order, ([], 0), [fd], when_answered)


def answer(forkserver: socket.socket) -> None:
    """Takes an order, lets go of its descriptor, and answers."""
    data, fds, _, _ = socket.recv_fds(forkserver, 1 << 17, 1)
    os.close(*fds)
    step = lean_json.load_object(data)["step"]
    forkserver.send(lean_json.dumps({"step": step, "pid": 0}).encode("ascii"))


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def with_channel(act: Callable[[Orders, ForkserverChannel, socket.socket], Awaitable[None]]) -> None:
    async def run() -> None:
        channel = ForkserverChannel(load("/nowhere", must_exist=False), -1, -1, lambda _: None, list)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        channel._sock = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), channel._read)
        with theirs:
            try:
                await act(Orders(channel), channel, theirs)
            finally:
                channel.close()

    asyncio.run(run())


def test_a_client_is_told_when_the_forkserver_has_let_go_of_what_leads_to_its_stepd() -> None:
    async def act(orders: Orders, channel: ForkserverChannel, theirs: socket.socket) -> None:
        del channel
        orders.submit()
        await turns()
        assert orders.told == []
        answer(theirs)
        await turns()
        assert orders.told == [False]

    with_channel(act)


def test_a_client_waits_while_the_forkserver_takes_no_order() -> None:
    async def act(orders: Orders, channel: ForkserverChannel, theirs: socket.socket) -> None:
        while not channel._is_full:
            orders.submit()
        await turns()
        assert orders.told == []
        while len(orders.told) < orders.number:
            answer(theirs)
            await turns()
        assert orders.told == [False] * orders.number

    with_channel(act)


def test_no_client_waits_for_a_forkserver_that_has_died() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})

    async def act(orders: Orders, channel: ForkserverChannel, theirs: socket.socket) -> None:
        channel.pid = pid
        while not channel._is_full:
            orders.submit()
        theirs.close()
        await turns()
        assert orders.told == [False] * orders.number

    with_channel(act)
