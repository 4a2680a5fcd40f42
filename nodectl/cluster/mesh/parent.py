"""The search for a parent in asyncio: ask the candidates of `search.py` again and again until a candidate accepts."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from nodectl.cluster.mesh.envelope import Header
from nodectl.cluster.mesh.roll import Addresses
from nodectl.cluster.mesh.search import NotJoined, Search

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Answer(NamedTuple):
    """The answer of a candidate parent. `say` is welcome, go or no."""

    say: str
    words: Header


Ask = Callable[[Addresses, list[int]], Awaitable[Answer]]


async def seek(ask: Ask, search: Search, limit: float) -> None:
    """Ask candidates until a candidate accepts this member.

    `ask` raises OSError where no candidate answers. Raises NotJoined after `limit` seconds, or where this rank is lost.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + limit
    pause = _FIRST_PAUSE
    while loop.time() < until:
        while (addresses := search.next()) is not None:
            try:
                say, words = await ask(addresses, search.avoided)
            except OSError as error:
                search.failed(str(error))
                continue
            if search.answered(say, words):
                return
        search.again()
        await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311  # many members ask at the same time
        pause = min(2 * pause, _LONGEST_PAUSE)
    raise NotJoined(search.why)
