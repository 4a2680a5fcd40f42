"""Another root takes the place of one that is lost: those who follow reach each other, and nobody else."""

from __future__ import annotations

import asyncio
import functools
import os

from nodectl.cluster.mesh.mesh import LEADER, Mesh, NotJoined
from unit.cluster.mesh.members import QUICK, SECRET, Ear, Tree, grown, played, until


def follow(tree: Tree, root: int, epoch: int = 1, *ranks: int) -> None:
    at = tree.ears[root].mesh.addresses
    for rank in ranks or [rank for rank in tree.ears if rank != LEADER]:
        tree.ears[rank].mesh.succeed(epoch, root, at)


async def next_leader(tree: Tree, root: int, epoch: int = 1) -> Ear:
    names = [f"n{number}" for number in range(tree.count)]
    mesh = Mesh(LEADER, names, SECRET, settings=tree.settings, epoch=epoch, root=root)
    tree.ears[LEADER] = Ear(mesh)
    await mesh.join(tree.ears[root].mesh.addresses)
    return tree.ears[LEADER]


async def lose_root(tree: Tree, *more: int) -> None:
    for rank in (0, LEADER, *more):
        ear = tree.ears.pop(rank)
        ear.mesh.on_lost(lambda *_: None)
        await ear.mesh.close()
    for ear in tree.ears.values():
        ear.mesh.on_rootless(lambda _: None)


def all_joined(leader: Ear, ranks: set[int]) -> bool:
    return set(leader.joined) == ranks


def has_heard(one: Ear, number: int, senders: set[int]) -> bool:
    return {sender for sender, _, header, _ in one.heard if header == {"number": number}} >= senders


async def all_reach_each_other(tree: Tree, number: int) -> None:
    for one in tree.ears.values():
        for other in tree.ears:
            one.mesh.send(other, "word", {"number": number})
    for one in tree.ears.values():
        await until(functools.partial(has_heard, one, number, set(tree.ears)))


def test_those_who_follow_reach_each_other_and_the_next_leader() -> None:
    async def play() -> None:
        async with grown(7) as tree:
            await all_reach_each_other(tree, 1)
            await lose_root(tree)
            follow(tree, 3)
            leader = await next_leader(tree, 3)
            await until(lambda: set(leader.joined) == {1, 2, 3, 4, 5, 6})
            await until(lambda: all(0 in ear.lost for ear in tree.ears.values()))
            await all_reach_each_other(tree, 2)
            assert all(ear.lost == [0] for ear in tree.ears.values())
            assert all("n3 leads in its place" in ear.why[0] for ear in tree.ears.values())

    played(play())


def test_who_had_to_do_with_each_other_is_told_that_something_may_be_lost() -> None:
    async def play() -> None:
        async with grown(4) as tree:
            tree.ears[1].mesh.send(3, "word", {"number": 1})
            await until(lambda: tree.ears[3].heard)
            await lose_root(tree)
            follow(tree, 1)
            await until(lambda: 3 in tree.ears[1].resumed and 1 in tree.ears[3].resumed)
            assert 1 not in tree.ears[2].resumed

    played(play())


def test_those_beneath_one_that_follows_are_told() -> None:
    async def play() -> None:
        async with grown(7) as tree:  # 3 and 4 stand beneath 1
            await lose_root(tree)
            follow(tree, 2, 1, 1, 2)
            await until(lambda: {tree.ears[rank].mesh.epoch for rank in (3, 4, 5, 6)} == {1})
            leader = await next_leader(tree, 2)
            await until(lambda: set(leader.joined) == {1, 2, 3, 4, 5, 6})

    played(play())


def test_who_does_not_follow_is_lost() -> None:
    async def play() -> None:
        async with grown(3, QUICK._replace(patience=0.2)) as tree:
            await lose_root(tree)
            follow(tree, 1, 1, 1)
            await until(lambda: tree.ears[1].lost == [0, 2])
            assert not tree.ears[2].lost

    played(play())


def test_who_was_lost_before_stays_lost() -> None:
    async def play() -> None:
        async with grown(4) as tree:
            await tree.ears.pop(3).mesh.close()
            await until(lambda: all(ear.lost == [3] for ear in tree.ears.values()))
            await lose_root(tree)
            follow(tree, 1)
            leader = await next_leader(tree, 1)
            await until(lambda: set(leader.joined) == {1, 2})
            assert set(leader.lost) == {0, 3}
            assert tree.ears[2].lost == [3, 0]

    played(play())


def test_words_of_an_earlier_epoch_reach_nobody() -> None:
    async def play() -> None:
        async with grown(3) as tree:
            await lose_root(tree)
            follow(tree, 1)
            leader = await next_leader(tree, 1)
            await until(lambda: set(leader.joined) == {1, 2})
            late = Mesh(LEADER, ["n0", "n1", "n2"], SECRET, settings=QUICK)
            try:
                await late.join(tree.ears[1].mesh.addresses, limit=0.5)
            except NotJoined:
                pass
            else:
                raise AssertionError("a leader of epoch 0 was taken")
            finally:
                await late.close()
            tree.ears[2].mesh.succeed(1, 0, ())  # nor does anybody go back
            assert tree.ears[2].mesh.root == 1

    played(play())


def test_several_follow_one_another() -> None:
    async def play() -> None:
        async with grown(5) as tree:
            await lose_root(tree)
            for epoch, root in enumerate((4, 1, 2), 1):
                follow(tree, root, epoch)
                leader = await next_leader(tree, root, epoch)
                await until(functools.partial(all_joined, leader, set(tree.ears) - {LEADER}))
                await all_reach_each_other(tree, epoch)
                for rank in (root, LEADER):
                    await tree.ears.pop(rank).mesh.close()
            assert set(tree.ears) == {3}

    played(play())


def test_it_is_told_when_the_root_is_missed_and_when_it_is_there_again() -> None:
    async def play() -> None:
        # An address that nobody else uses: the port is free still when the root comes back.
        own = f"127.1.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        async with grown(3, host=own) as tree:
            told: list[bool] = []
            tree.ears[2].mesh.on_rootless(told.append)
            port = tree.at[0][1]
            await tree.ears.pop(LEADER).mesh.close()
            await tree.ears.pop(0).mesh.close()
            await until(lambda: told == [True])
            root = tree.member(0)
            await root.mesh.listen([own], port)
            await until(lambda: told == [True, False])
            await asyncio.sleep(0)

    played(play())
