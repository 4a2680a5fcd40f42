"""The tree as arithmetic, and the way in it where ranks are missing."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from nodectl.cluster import tree
from nodectl.cluster.mesh.roll import Entry
from nodectl.cluster.mesh.routes import Routes

WIDTHS = st.integers(1, 20)


@given(st.integers(1, 400), WIDTHS)
def test_no_rank_has_more_children_than_the_tree_is_wide(count: int, width: int) -> None:
    parents = [tree.parent(rank, width) for rank in range(1, count)]
    assert all(parent < rank for rank, parent in enumerate(parents, 1))
    assert all(parents.count(parent) == width for parent in set(parents) - set(parents[-1:]))
    assert all(parents.count(parent) <= width for parent in parents[-1:])


@given(st.integers(1, 60), WIDTHS, st.data())
def test_living_reach_each_other_without_a_circle(count: int, width: int, data: st.DataObject) -> None:
    """Also where somebody stands beneath another ancestor than the nearest."""
    dead = data.draw(st.sets(st.integers(1, count))) - {tree.ROOT}
    living = [rank for rank in range(count) if rank not in dead]
    above = {}
    for rank in living[1:]:
        choice = [one for one in tree.ancestors(rank, width) if one in living]
        above[rank] = data.draw(st.sampled_from(choice))
    beneath = {rank: {one for one, parent in above.items() if parent == rank} for rank in living}
    routes = {rank: Routes() for rank in living}
    for rank in living[1:]:
        for one in chain(rank, above):
            routes[one].census(rank, [Entry(child, 0, ()) for child in beneath[rank]])
    for start in living:
        for goal in living:
            at, way = start, [start]
            while at != goal:
                hop = routes[at].next_hop(goal, beneath[at])
                at = above[at] if hop is None else hop
                assert at not in way, (start, goal, way)
                way.append(at)


def chain(rank: int, above: dict[int, int]) -> Iterator[int]:
    """All who stand above a rank."""
    while rank in above:
        rank = above[rank]
        yield rank


@given(st.integers(0, 100), st.integers(1, 400), WIDTHS)
def test_all_beneath_a_rank_are_those_of_whom_it_is_an_ancestor(top: int, count: int, width: int) -> None:
    found = [rank for generation in tree.beneath(top, count, width) for rank in generation]
    assert found == [rank for rank in range(count) if tree.is_beneath(rank, top, width)]


@given(st.integers(0, 400), st.integers(0, 400), WIDTHS)
def test_beneath_is_what_ancestors_say(rank: int, top: int, width: int) -> None:
    assert tree.is_beneath(rank, top, width) is (rank == top or top in tree.ancestors(rank, width))
