"""What two agents say of one step arrives once and in its order, whatever links lose."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.cluster.agent.channel import Channel, Header


class Link:
    """Two ends; what is on its way goes when the link breaks, and both are told."""

    def __init__(self) -> None:
        self.got: tuple[list[object], list[object]] = ([], [])
        self.ways: tuple[deque[Header], deque[Header]] = (deque(), deque())
        self.ends = (
            Channel(self.ways[1].append, self.got[0].append),
            Channel(self.ways[0].append, self.got[1].append),
        )

    def move(self, end: int) -> None:
        if self.ways[end]:
            self.ends[end].hear(self.ways[end].popleft())

    def breaks(self) -> None:
        for way in self.ways:
            way.clear()
        for end in self.ends:
            end.ask()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_is_lost_or_said_twice(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    link = Link()
    said = [0, 0]
    for _ in range(300):
        end = dice.randrange(2)
        if dice.random() < 0.4:
            said[end] += 1
            link.ends[end].say(said[end])
        else:
            link.move(end)
        if dice.random() < 0.03:
            link.breaks()
    link.breaks()
    while any(link.ways):
        link.move(0)
        link.move(1)
    assert link.got == ([*range(1, said[1] + 1)], [*range(1, said[0] + 1)])


def test_what_was_heard_is_not_kept() -> None:
    link = Link()
    for number in range(1000):
        link.ends[0].say(number)
        link.move(1)
        link.move(0)
    assert len(link.ends[0]._kept) <= 16


def test_what_is_missing_is_asked_for_once() -> None:
    link = Link()
    for number in range(1000):
        link.ends[0].say(number)
    link.ways[1].popleft()
    while link.ways[1]:
        link.move(1)
    assert sum(bool(header.get("again")) for header in link.ways[0]) == 1
    while any(link.ways):
        link.move(0)
        link.move(1)
    assert link.got[1] == [*range(1000)]
