"""When a client's descriptors may be sent to its stepd: not while the daemon could have to close them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

import pytest

from nodectl.config_file.reader import load
from nodectl.daemon.processes.forkserver_channel import ForkserverChannel


class Orders:
    """Orders with a descriptor each; which of these were still open here when its client was told."""

    def __init__(self, channel: ForkserverChannel) -> None:
        self._channel = channel
        self.told: list[bool] = []

    def submit(self) -> None:
        fd, writer = os.pipe()
        os.close(writer)

        def when_sent() -> None:
            try:
                os.fstat(fd)
            except OSError:
                self.told.append(False)
            else:
                self.told.append(True)

        self._channel.submit({"step": "1.0", "room": "x" * 4096}, ([], 0), [fd], when_sent)


def with_channel(act: Callable[[Orders, ForkserverChannel, socket.socket], Awaitable[None]]) -> None:
    async def run() -> None:
        channel = ForkserverChannel(load("/nowhere", must_exist=False), -1, -1, lambda _: None, list)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        channel._sock = ours
        with theirs:
            try:
                await act(Orders(channel), channel, theirs)
            finally:
                channel.close()

    asyncio.run(run())


def test_a_client_is_told_when_the_daemon_has_let_go_of_what_leads_to_its_stepd() -> None:
    async def act(orders: Orders, channel: ForkserverChannel, theirs: socket.socket) -> None:
        del channel, theirs
        orders.submit()
        assert orders.told == [False]

    with_channel(act)


@pytest.mark.parametrize("dies", [False, True])
def test_a_client_waits_while_the_forkserver_takes_no_order(*, dies: bool) -> None:
    async def act(orders: Orders, channel: ForkserverChannel, theirs: socket.socket) -> None:
        number = 0
        while len(orders.told) == number:
            orders.submit()
            number += 1
        assert orders.told == [False] * (number - 1)
        if dies:
            channel.close()
        while len(orders.told) < number:
            socket.recv_fds(theirs, 1 << 17, 1)
            await asyncio.sleep(0)
        assert orders.told == [False] * number

    with_channel(act)
