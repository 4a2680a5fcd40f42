"""Whatever dies, is cut or begins anew, at any moment: the living reach each other, in order, and nobody twice."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.cluster import tree
from unit.cluster.mesh.net import SETTINGS, Net

COUNTS = st.integers(1, 14)
SEEDS = st.integers(0, 2**32)
PAUSES = st.lists(st.tuples(st.sampled_from(["kill", "cut", "say", "leader"]), st.integers(0, 60)), max_size=12)
A_WHILE = SETTINGS.grace + SETTINGS.silence + SETTINGS.grace + SETTINGS.patience + 2


def everybody_reaches_everybody(net: Net) -> None:
    said = {(one, other): net.say(one, other) for one in net.alive() for other in net.alive()}
    net.settle()
    for (one, other), number in said.items():
        assert net.members[other].heard.get(one, [])[-1:] == [number], (one, other)


def nobody_heard_twice_or_late(net: Net) -> None:
    for member in net.members.values():
        for numbers in member.heard.values():
            assert all(before < after for before, after in pairwise(numbers))  # type: ignore[operator]


def both_were_told_of_what_was_lost(net: Net) -> None:
    for one, other, number, knew in net.said:
        if number in other.heard.get(one.rank, ()) or not one.alive:
            continue
        if other.alive:
            assert other.rank in one.told_resumed, (one.rank, other.rank, "sender")
            if knew:  # otherwise it cannot know that there was anything
                assert one.rank in other.told_resumed, (one.rank, other.rank, "receiver")
        else:
            assert other.rank in [*one.told_lost, *one.told_resumed]


def happens(net: Net, what: str, number: int) -> None:
    """`number` chooses whom."""
    ranks = net.alive()
    one = ranks[number % len(ranks)]
    if what == "kill" and one > tree.ROOT:
        net.kill(one)
    elif what == "cut" and net.ends:
        net.ends[number % len(net.ends)].cut("cut")
    elif what == "say":
        for other in ranks:
            net.say(one, other)
    elif what == "leader":
        net.kill(tree.LEADER)
        net.begin(tree.LEADER)


@given(COUNTS, SEEDS)
def test_all_join_and_reach_each_other(count: int, seed: int) -> None:
    net = Net(count, Random(seed))
    net.settle(A_WHILE)
    assert not any(member.search or member.out for member in net.members.values())
    everybody_reaches_everybody(net)


@given(COUNTS, SEEDS, PAUSES)
@settings(max_examples=300)
def test_living_reach_each_other_and_know_the_dead(count: int, seed: int, play: list[tuple[str, int]]) -> None:
    net = Net(count, Random(seed))
    net.settle(A_WHILE)
    for what, number in play:
        happens(net, what, number)
        net.run(number)
    net.settle(A_WHILE)
    living = net.alive()
    dead = set(range(count)) - set(living)
    assert not any(net.members[rank].out for rank in living)
    for rank in living:
        assert sorted(net.members[rank].told_lost) == sorted(dead), rank
    everybody_reaches_everybody(net)
    nobody_heard_twice_or_late(net)
    both_were_told_of_what_was_lost(net)


@given(COUNTS, SEEDS, PAUSES)
@settings(max_examples=200)
def test_it_also_holds_while_they_join(count: int, seed: int, play: list[tuple[str, int]]) -> None:
    net = Net(count, Random(seed))
    for what, number in play:
        happens(net, what, number)
        net.run(number)
    net.settle(A_WHILE)
    living = net.alive()
    assert not any(net.members[rank].out for rank in living)
    everybody_reaches_everybody(net)
    nobody_heard_twice_or_late(net)
