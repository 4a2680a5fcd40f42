"""Others on the network: thousands of connections without the secret hold up nobody who has it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource

from nodectl.cluster.mesh.mesh import LEADER, Mesh, NotJoined
from unit.cluster.mesh.members import QUICK, Tree, played, until

FEW = QUICK._replace(most_strangers=20, handshake=30.0)


def test_thousands_of_strangers_keep_nobody_from_joining() -> None:
    async def play() -> None:
        tree = Tree(3, FEW)
        tree.at = await tree.member(0).mesh.listen(["127.0.0.1"])
        most = 0
        stranger_writers: list[asyncio.StreamWriter] = []

        async def knock() -> None:
            nonlocal most
            for number in range(2000):
                _, writer = await asyncio.open_connection(*tree.at[0])
                writer.write(b"nodectl link 0001\n"[: number % 19])
                stranger_writers.append(writer)
                most = max(most, len(tree.ears[0].mesh._links.strangers))
                if len(stranger_writers) > 200:
                    stranger_writers.pop(0).close()

        knocking = asyncio.ensure_future(knock())
        await until(lambda: most == FEW.most_strangers)
        for rank in (1, 2, LEADER):
            await tree.member(rank).mesh.join(tree.at)
        await until(lambda: len(tree.ears[LEADER].joined) == 3)
        assert not knocking.done()
        await knocking
        assert most == FEW.most_strangers
        for writer in stranger_writers:
            writer.close()
        await asyncio.gather(*(ear.mesh.close() for ear in tree.ears.values()))

    played(play())


def test_other_secret_does_not_join_and_is_told_what_may_be_wrong() -> None:
    async def play() -> None:
        tree = Tree(2)
        tree.at = await tree.member(0).mesh.listen(["127.0.0.1"])
        other = Mesh(1, ["n0", "n1"], bytes(32), settings=QUICK)
        with contextlib.suppress(NotJoined):
            await other.join(tree.at, limit=0.3)
            raise AssertionError
        await other.close()
        await tree.ears[0].mesh.close()

    played(play())


def test_strangers_leave_descriptors_for_the_work() -> None:
    most = 256 + len(os.listdir("/proc/self/fd"))  # a quarter of the limit, and room for what other tests have open

    async def play() -> None:
        tree = Tree(2, FEW._replace(most_strangers=4096))
        tree.at = await tree.member(0).mesh.listen(["127.0.0.1"])
        writers = [(await asyncio.open_connection(*tree.at[0]))[1] for _ in range(most + 44)]
        await until(lambda: len(tree.ears[0].mesh._links.strangers) == most)
        await tree.member(LEADER).mesh.join(tree.at)
        assert len(tree.ears[0].mesh._links.strangers) <= most
        for writer in writers:
            writer.close()
        await asyncio.gather(*(ear.mesh.close() for ear in tree.ears.values()))

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * most, before[1]))
    try:
        played(play())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
