"""A tree of members in one event loop, over real TCP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from nodectl.cluster.mesh.mesh import LEADER, Header, Mesh, Settings

SECRET = bytes(range(32))
QUICK = Settings(width=2, beat=0.1, silence=2.0, grace=0.5, patience=2.0)
LONG = 60  # seconds, after which a test has failed


async def until(holds: Callable[[], object]) -> None:
    """Returns when it holds."""
    async with asyncio.timeout(LONG):
        while not holds():  # noqa: ASYNC110  # it is of several members
            await asyncio.sleep(0.005)


def played(play: Coroutine[Any, Any, None]) -> None:
    """Runs a test to its end. What asyncio would only have logged is a failure."""
    logged: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        async with asyncio.timeout(4 * LONG):
            await play

    asyncio.run(watched())
    assert not logged


class Ear:
    """What one member has been told."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.heard: list[tuple[int, str, Header, bytes]] = []
        self.lost: list[int] = []
        self.why: dict[int, str] = {}
        self.resumed: list[int] = []
        self.joined: dict[int, Header] = {}
        for kind in ("word", "part", "echo"):
            mesh.handle(kind, self._hears(kind))
        mesh.on_lost(self._loses)
        mesh.on_resumed(self.resumed.append)
        mesh.on_joined(self.joined.__setitem__)

    @property
    def rank(self) -> int:
        return self.mesh.rank

    def _hears(self, kind: str) -> Callable[[int, Header, bytes], None]:
        def hear(sender: int, header: Header, body: bytes) -> None:
            self.heard.append((sender, kind, header, body))

        return hear

    def _loses(self, rank: int, why: str) -> None:
        self.lost.append(rank)
        self.why[rank] = why


class Tree:
    """`ears[rank]` for each; LEADER among them. `host`: where rank 0 listens."""

    def __init__(self, count: int, settings: Settings = QUICK, host: str = "127.0.0.1") -> None:
        self.count = count
        self.host = host
        self.settings = settings
        self.at: list[tuple[str, int]] = []
        self.ears: dict[int, Ear] = {}

    def member(self, rank: int) -> Ear:
        """A new process of this rank, which has not joined."""
        names = [f"n{number}" for number in range(self.count)]
        self.ears[rank] = Ear(Mesh(rank, names, SECRET, said={"name": f"n{rank}"}, settings=self.settings))
        return self.ears[rank]

    async def grow(self) -> None:
        """All join, and the leader has heard of all."""
        self.at = await self.member(0).mesh.listen([self.host])
        others = [self.member(rank) for rank in range(1, self.count)]
        leader = self.member(LEADER)
        await asyncio.gather(*(ear.mesh.join(self.at) for ear in reversed([*others, leader])))
        await until(lambda: len(leader.joined) == self.count)


@contextlib.asynccontextmanager
async def grown(count: int, settings: Settings = QUICK, host: str = "127.0.0.1") -> AsyncIterator[Tree]:
    """A tree whose members have all joined."""
    tree = Tree(count, settings, host)
    try:
        await tree.grow()
        yield tree
    finally:
        await asyncio.gather(*(ear.mesh.close() for ear in tree.ears.values()))
