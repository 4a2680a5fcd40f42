"""Where a rank stands that comes early, late, twice, or when it is lost already."""

from __future__ import annotations

from random import Random

from nodectl.cluster import tree
from nodectl.cluster.mesh import envelope
from unit.cluster.mesh.net import SETTINGS, Net


def reliable(count: int) -> Net:
    net = Net(count, Random(1))
    net.unreachable = 0.0
    return net


def above(net: Net, rank: int) -> list[int]:
    return [one for one, _ in net.members[rank].core.above]


def later(net: Net, *ranks: int) -> None:
    """These have not begun yet."""
    for rank in ranks:
        net.members[rank].pauses = True
        net.members[rank].alive = False


def begin(net: Net, *ranks: int) -> None:
    for rank in ranks:
        net.members[rank].alive = True


def test_who_comes_before_its_parent_stands_beneath_it_all_the_same() -> None:
    net = reliable(7)
    later(net, 1)
    net.settle()
    assert above(net, 3) == []
    begin(net, 1)
    net.settle(0.5 * SETTINGS.patience)
    assert above(net, 3) == [1, 0]


def test_who_has_waited_long_enough_stands_beneath_the_next_and_stays_there() -> None:
    net = reliable(15)
    later(net, 3)
    net.settle(SETTINGS.patience + 1)
    assert above(net, 7) == above(net, 8) == [1, 0]
    begin(net, 3)
    net.settle(1)
    assert above(net, 3) == [1, 0]
    assert above(net, 7) == [1, 0]
    net.say(7, 3)
    net.settle()
    assert net.members[3].heard[7]


def test_parent_that_never_comes_is_no_node_that_is_lost() -> None:
    net = reliable(4)
    later(net, 1)
    net.settle(3 * SETTINGS.patience)
    assert above(net, 3) == [0]
    assert not net.members[3].told_lost


def test_who_is_given_up_is_told_so_and_those_beneath_it_stand_elsewhere() -> None:
    net = reliable(7)
    net.settle(SETTINGS.patience)
    net.members[tree.LEADER].core.give_up(1, "the engine says so", net.now)
    net.settle()
    assert net.members[1].told_lost == [1]
    assert all(member.told_lost == [1] for member in net.members.values())
    net.kill(1)
    net.settle(SETTINGS.grace + 1)
    assert above(net, 3) == above(net, 4) == [0]
    assert all(member.told_lost == [1] for member in net.members.values())


def test_nobody_gives_up_who_is_no_agent() -> None:
    net = reliable(3)
    net.settle(SETTINGS.patience)
    for rank in (tree.LEADER, tree.ROOT, 3):
        net.members[2].core.give_up(rank, "a mistake", net.now)
    net.settle()
    assert not any(member.told_lost for member in net.members.values())
    net.say(2, tree.LEADER)
    net.settle()
    assert net.members[tree.LEADER].heard[2]


def test_rank_that_is_lost_does_not_join_again() -> None:
    net = reliable(3)
    net.settle(SETTINGS.patience)
    net.kill(1)
    net.settle(SETTINGS.grace + 1)
    net.begin(1)
    net.settle(1)
    assert net.members[1].out


def test_who_is_no_descendant_is_sent_away() -> None:
    net = reliable(7)
    net.settle(SETTINGS.patience)
    other, one = net.members[2], net.members[3]
    end = net.wire(one, other)
    words = {"say": "join", "rank": 3, "turn": 99, "addresses": [], "avoid": [], "first": True}
    other.core.heard(end.other, envelope.control(words), net.now)
    assert envelope.control_words(end.inbox[-1])["say"] == "no"
    assert 3 not in other.core.beneath


def test_rank_that_cannot_be_is_no_member() -> None:
    net = reliable(3)
    net.settle(SETTINGS.patience)
    for rank in (3, -2, 0, True, "1", None):
        words: dict[str, object] = {"say": "join", "rank": rank, "turn": 0, "addresses": [], "avoid": []}
        end = net.wire(net.members[1], net.members[0])
        try:
            net.members[0].core.heard(end.other, envelope.control(words), net.now)
        except envelope.BadMessage:
            continue
        raise AssertionError(rank)
