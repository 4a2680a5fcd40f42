"""Messages as they travel: each rank gets its part, once, however often it is split; what is no message is refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.cluster import tree
from nodectl.cluster.link.frames import LONGEST
from nodectl.cluster.mesh import envelope
from unit.cluster.mesh.net import SETTINGS, Net

PARTS = st.dictionaries(st.integers(0, 200), st.text(max_size=20), min_size=1, max_size=40)
KINDS = st.from_regex(r"[a-z_.]{1,40}", fullmatch=True)


@given(
    KINDS, st.integers(-1, 20_000), st.dictionaries(st.text(max_size=5), st.text(max_size=9)), st.binary(max_size=99)
)
def test_message_is_what_was_sent(kind: str, to: int, header: dict[str, str], body: bytes) -> None:
    payload = envelope.message(7, to, 1 << 60, kind, header, body)
    assert envelope.addressee(payload) == to
    assert envelope.opened(payload) == (7, 1 << 60, kind, header, body)


@given(PARTS, st.binary(max_size=50), st.integers(1, 5))
def test_each_rank_gets_its_part_once_however_often_it_is_split(parts: dict[int, str], body: bytes, width: int) -> None:
    found = {}
    payloads = envelope.each(tree.LEADER, 9, "start", {"job": 1}, parts, body)
    at = [(tree.ROOT, payload) for payload in payloads]
    while at:
        rank, payload = at.pop()

        def hop(to: int, rank: int = rank) -> int:
            """The child that is an ancestor of it, or -1 for the rank itself."""
            while to > rank and tree.parent(to, width) != rank:
                to = tree.parent(to, width)
            return -1 if to == rank else to

        for child, theirs in envelope.split(payload, hop).items():
            for one in theirs:
                if child >= 0:
                    at.append((child, one))
                else:
                    assert rank not in found
                    found[rank] = envelope.opened_each(one)
    assert {rank: message.header["part"] for rank, message in found.items()} == parts
    for message in found.values():
        assert message[:3] == (tree.LEADER, 9, "start")
        assert message.header["job"] == 1
        assert message.body == body


def test_parts_for_many_go_in_several_frames() -> None:
    parts = dict.fromkeys(range(3000), "x" * 2000)
    payloads = envelope.each(tree.LEADER, 1, "start", {}, parts, b"")
    assert len(payloads) > 4
    assert max(map(len, payloads)) < LONGEST // 2
    ranks = [rank for payload in payloads for rank in envelope.split(payload, lambda rank: rank)]
    assert ranks == list(parts)


@given(st.binary(max_size=80), st.sampled_from([b"M", b"E", b"C", b"B", b""]))
def test_what_is_no_message_is_refused_and_nothing_else_happens(data: bytes, first: bytes) -> None:
    net = Net(3, Random(1))
    net.unreachable = 0.0
    net.settle(SETTINGS.patience)
    root = net.members[tree.ROOT]
    try:
        root.core.heard(root.core.beneath[1], first + data, net.now)
    except (envelope.BadMessage, ValueError):
        pass
    net.say(1, 2)
    net.settle()
    assert net.members[2].heard[1]


@given(st.data())
def test_message_that_is_cut_off_anywhere_is_refused_or_shorter(data: st.DataObject) -> None:
    payloads = envelope.each(0, 1, "start", {"a": 1}, {1: "b", 2: "c"}, b"body")
    cut = payloads[0][: data.draw(st.integers(0, len(payloads[0]) - 1))]
    with pytest.raises(envelope.BadMessage):
        envelope.split(cut, lambda rank: rank)


def test_who_has_not_joined_sends_nothing() -> None:
    net = Net(2, Random(1))
    net.unreachable = 0.0
    net.settle(SETTINGS.patience)
    root = net.members[tree.ROOT]
    stranger = net.wire(net.members[1], root)
    for payload in (
        envelope.message(1, tree.ROOT, 99, "word", {"number": 1}, b""),
        envelope.each(1, 99, "word", {"number": 1}, {0: 0}, b"")[0],
    ):
        with pytest.raises(envelope.BadMessage, match="joined"):
            root.core.heard(stranger.other, payload, net.now)
    assert not root.heard
