"""A reader of the network, between a port and those who connect to it. As a program: host, port, and the file in which
all bytes of both directions are kept; it prints its own port.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable

_PIECE = 65536


async def relayed(host: str, port: int, hear: Callable[[bytes], object]) -> asyncio.Server:
    """A port of this machine, which leads there."""

    async def pass_on(reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(_PIECE):
            hear(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def meet(reader: StreamReader, writer: StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer), return_exceptions=True)

    return await asyncio.start_server(meet, "127.0.0.1", 0)


async def _serve(host: str, port: int, hear: Callable[[bytes], object]) -> None:
    server = await relayed(host, port, hear)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    host, port, path = sys.argv[1:]
    with open(path, "wb", buffering=0) as file:
        asyncio.run(_serve(host, int(port), file.write))
