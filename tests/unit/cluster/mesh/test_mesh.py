"""Members of a tree find each other: every rank reaches every other one, and the leader."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from nodectl.cluster.mesh.mesh import LEADER, Header
from unit.cluster.mesh.members import QUICK, Tree, grown, played, until


def test_everybody_reaches_everybody_in_order() -> None:
    async def play() -> None:
        async with grown(7) as tree:
            ranks = [LEADER, *range(7)]
            for number in range(5):
                for one in ranks:
                    for other in ranks:
                        tree.ears[one].mesh.send(other, "word", {"number": number}, b"%d\n" % one)
            await until(lambda: all(len(tree.ears[one].heard) == 5 * 8 for one in ranks))
            assert not any(ear.resumed or ear.lost for ear in tree.ears.values())
            for one in ranks:
                for other in ranks:
                    words = [(header, body) for sender, _, header, body in tree.ears[one].heard if sender == other]
                    assert words == [({"number": number}, b"%d\n" % other) for number in range(5)]

    played(play())


def test_leader_is_told_what_each_agent_says_of_its_machine() -> None:
    async def play() -> None:
        async with grown(5) as tree:
            assert tree.ears[LEADER].joined == {rank: {"name": f"n{rank}"} for rank in range(5)}

    played(play())


def test_each_gets_its_own_part_and_what_all_get() -> None:
    async def play() -> None:
        async with grown(7) as tree:
            parts = {rank: {"tasks": [rank]} for rank in range(7) if rank != 4}
            tree.ears[LEADER].mesh.send_each("part", {"job": 1}, parts, b"common")
            await until(lambda: all(tree.ears[rank].heard for rank in parts))
            for rank in parts:
                header = {"job": 1, "part": {"tasks": [rank]}}
                assert tree.ears[rank].heard == [(LEADER, "part", header, b"common")]
            assert not tree.ears[4].heard

    played(play())


def test_those_beneath_a_dead_node_stand_elsewhere_and_all_are_told_that_it_is_lost() -> None:
    async def play() -> None:
        async with grown(7) as tree:
            await tree.ears.pop(1).mesh.close()
            await until(lambda: all(ear.lost == [1] for ear in tree.ears.values()))
            tree.ears[LEADER].mesh.send_each("part", {}, dict.fromkeys(range(7), "still here"))
            await until(lambda: all(ear.heard for rank, ear in tree.ears.items() if rank != LEADER))
            assert set(tree.ears[LEADER].resumed) >= {3, 4}

    played(play())


def test_leader_that_begins_anew_is_told_of_all_machines_and_all_are_told_of_it() -> None:
    async def play() -> None:
        async with grown(7) as tree:
            await tree.ears.pop(LEADER).mesh.close()
            leader = tree.member(LEADER)
            await leader.mesh.join(tree.at)
            await until(lambda: set(leader.joined) == set(range(7)))
            await until(lambda: all(tree.ears[rank].resumed == [LEADER] for rank in range(7)))
            leader.mesh.send(6, "word", {})
            await until(lambda: tree.ears[6].heard)

    played(play())


def test_nobody_is_lost_because_all_were_stopped_for_a_while() -> None:
    """As a whole job is, by its scheduler."""

    async def play() -> None:
        async with grown(4) as tree:
            time.sleep(1.5 * QUICK.silence)  # noqa: ASYNC251  # the event loop of all of them stands still
            for one in range(4):
                tree.ears[one].mesh.send(LEADER, "word", {})
            await until(lambda: len(tree.ears[LEADER].heard) == 4)
            assert not any(ear.lost or ear.resumed for ear in tree.ears.values())

    played(play())


def test_addresses_that_do_not_answer_keep_nobody_from_joining() -> None:
    async def play() -> None:
        tree = Tree(2, QUICK._replace(handshake=30.0))
        tree.at = await tree.member(0).mesh.listen(["127.0.0.1"])
        with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as refuses:
            refuses.bind(("127.0.0.1", 0))
            others = [silent.getsockname(), refuses.getsockname()]
            for rank in (1, LEADER):
                await tree.member(rank).mesh.join([*others, *tree.at])
            await until(lambda: len(tree.ears[LEADER].joined) == 2)
        await asyncio.gather(*(ear.mesh.close() for ear in tree.ears.values()))

    played(play())


def test_handlers_mistake_costs_nobody_a_link() -> None:
    def mistaken(sender: int, header: Header, body: bytes) -> None:
        raise KeyError(sender)

    async def play() -> None:
        logged: list[object] = []
        async with grown(2) as tree:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context["exception"]))
            tree.ears[1].mesh.handle("wrong", mistaken)
            tree.ears[0].mesh.send(1, "wrong", {})
            tree.ears[0].mesh.send(1, "word", {})
            await until(lambda: tree.ears[1].heard)
            assert [type(error) for error in logged] == [KeyError]

    played(play())


def test_message_longer_than_a_frame_is_refused_at_once() -> None:
    async def play() -> None:
        async with grown(2) as tree:
            with pytest.raises(ValueError, match="longer"):
                tree.ears[0].mesh.send(1, "word", {}, bytes(4 << 20))
            with pytest.raises(ValueError, match="longer"):
                tree.ears[0].mesh.send_each("part", {}, {1: "x" * (4 << 20)})
            tree.ears[0].mesh.send(1, "word", {})
            await until(lambda: tree.ears[1].heard)

    played(play())


def test_rank_that_joins_waits_for_a_busy_root_instead_of_calling_again() -> None:
    """Else the root of a large cluster computes handshakes for callers that have gone."""

    async def play() -> None:
        tree = Tree(2, QUICK._replace(handshake=0.05))
        loop = asyncio.get_running_loop()
        await tree.member(0).mesh.listen(["127.0.0.1"])
        with socket.create_server(("127.0.0.1", 0)) as busy:
            busy.setblocking(False)
            joining = asyncio.ensure_future(tree.member(1).mesh.join([busy.getsockname()]))
            call, _ = await loop.sock_accept(busy)
            await asyncio.sleep(10 * 0.05)  # enough for several calls
            with pytest.raises(BlockingIOError):
                busy.accept()
            await loop.connect_accepted_socket(tree.ears[0].mesh._links._stranger, call)
            await joining
        await asyncio.gather(*(ear.mesh.close() for ear in tree.ears.values()))

    played(play())
