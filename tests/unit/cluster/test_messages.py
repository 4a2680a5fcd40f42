"""Messages over pipes, without waiting."""

from __future__ import annotations

import asyncio
import os

from nodectl.cluster.agent.messages import Writer

_MOST, _PIECE = 1 << 24, 1 << 16


def test_who_reads_gets_more_while_the_loop_is_busy() -> None:
    async def play() -> None:
        reader, fd = os.pipe()
        os.set_blocking(reader, False)
        writer = Writer(fd, _MOST, lambda: None)
        data = bytes(range(256)) * (_PIECE // 256)
        writer.put(data * 2)  # more than a pipe takes
        got = b""
        for _ in range(20):  # no turn of the loop
            got += os.read(reader, _PIECE)
            writer.put(data)
        assert len(got) >= 10 * _PIECE
        assert got == (data * 22)[: len(got)]
        writer.close()
        os.close(reader)

    asyncio.run(play())
