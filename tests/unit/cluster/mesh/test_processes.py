"""Members in processes of their own, over TCP on loopback: killed, stopped, begun anew."""

from __future__ import annotations

import asyncio
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from nodectl.cluster.mesh.mesh import LEADER
from unit.cluster.mesh.members import played
from unit.cluster.mesh.process import MIB, PATIENT, Processes, processes

pytestmark = pytest.mark.slow


async def all_reach_each_other(tree: Processes, number: int) -> None:
    for one in tree.of.values():
        for other in tree.of:
            one.tell(other, number)
    for one in tree.of.values():
        for other in tree.of:
            await one.until("heard", other, number)


def test_what_is_killed_is_lost_and_the_others_reach_each_other() -> None:
    async def play() -> None:
        async with processes(7) as tree:
            await all_reach_each_other(tree, 1)
            killed = tree.kill(1)
            for one in tree.of.values():
                await one.until("lost", 1)
            await all_reach_each_other(tree, 2)
            await killed.end()
            for one in tree.of.values():
                assert [words for words in one.told if words[0] == "lost"] == [["lost", 1]]

    played(play())


def test_who_is_stopped_for_a_moment_is_not_lost_and_hears_everything_in_order() -> None:
    async def play() -> None:
        async with processes(4) as tree:
            stopped = tree.of[1]
            stopped.process.send_signal(SIGSTOP)
            for number in range(1, 100):
                tree.of[0].tell(1, number)
                tree.of[3].tell(LEADER, number)  # whose way goes through the one that is stopped
            stopped.process.send_signal(SIGCONT)
            await stopped.until("heard", 0, 99)
            await tree.of[LEADER].until("heard", 3, 99)
            assert stopped.heard(0) == tree.of[LEADER].heard(3) == list(range(1, 100))
            for rank, one in tree.of.items():
                assert (rank, [words for words in one.told if words[0] in {"lost", "resumed"}]) == (rank, [])

    played(play())


def test_who_is_silent_is_lost_and_is_told_so_when_it_speaks_again() -> None:
    async def play() -> None:
        async with processes(4) as tree:
            stopped = tree.of.pop(1)
            stopped.process.send_signal(SIGSTOP)
            for one in tree.of.values():
                await one.until("lost", 1)
            await all_reach_each_other(tree, 1)
            stopped.process.send_signal(SIGCONT)
            await stopped.until("lost", 1)
            await all_reach_each_other(tree, 2)
            await stopped.end()

    played(play())


def test_who_reads_nothing_costs_a_bounded_memory_and_nobody_elses_time() -> None:
    async def play() -> None:
        async with processes(4) as tree:
            stopped = tree.of[1]
            stopped.process.send_signal(SIGSTOP)
            before = memory(tree, 0)
            for number in range(1, 65):
                tree.of[LEADER].tell(1, number, MIB)
                tree.of[LEADER].tell(2, number)
            await tree.of[2].until("heard", LEADER, 64)
            assert memory(tree, 0) - before < 4 * PATIENT.most_queued
            stopped.process.send_signal(SIGCONT)
            await tree.of[LEADER].until("resumed", 1)  # what was too much is lost, and it is said
            number = 100
            while not await is_heard_or_said_to_be_lost(tree, 1, number):
                number += 1  # a process that was stopped may be lost a second time, on a busy machine

    played(play())


async def is_heard_or_said_to_be_lost(tree: Processes, rank: int, number: int) -> bool:
    """Send a message from the leader. Return True when it is heard, False when the leader hears of another loss."""
    leader, other = tree.of[LEADER], tree.of[rank]
    losses = leader.told.count(["resumed", rank])
    leader.tell(rank, number)
    heard = asyncio.ensure_future(other.until("heard", LEADER, number))
    lost = asyncio.ensure_future(leader.until("resumed", rank, times=losses + 1))
    await asyncio.wait((heard, lost), return_when=asyncio.FIRST_COMPLETED)
    found = heard.done()
    for waiting in (heard, lost):
        waiting.cancel()
    await asyncio.gather(heard, lost, return_exceptions=True)
    return found


def memory(tree: Processes, rank: int) -> int:
    """The most that a process has had."""
    status = Path(f"/proc/{tree.of[rank].process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))


def test_leader_that_is_killed_and_begins_anew_knows_all_and_is_known() -> None:
    async def play() -> None:
        async with processes(4) as tree:
            for turn in range(1, 3):
                killed = tree.kill(LEADER)
                leader = await tree.begin(LEADER)
                for rank in range(4):
                    await leader.until("joined", rank)
                    await tree.of[rank].until("resumed", LEADER)
                await all_reach_each_other(tree, turn)
                await killed.end()

    played(play())


def test_without_the_root_all_others_know_that_they_are_lost() -> None:
    async def play() -> None:
        async with processes(4) as tree:
            killed = tree.kill(0)
            for rank, one in tree.of.items():
                await one.until("lost", rank)
            await killed.end()

    played(play())
