"""Frames: whatever somebody on the way does to them, nothing but what was sent, in its order, comes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.cluster.link.frames import HEAD, LONGEST, BadFrame, Opener, Sealer

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
PAYLOADS = st.lists(st.binary(max_size=200), max_size=6)


def opened(opener: Opener) -> list[bytes]:
    found = []
    while (payload := opener.next()) is not None:
        found.append(payload)
    return found


@given(PAYLOADS, st.integers(1, 50))
def test_what_is_sealed_comes_out_however_it_is_cut(payloads: list[bytes], size: int) -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    data = b"".join(sealer.seal(payload) for payload in payloads)
    found = []
    for start in range(0, len(data), size):
        opener.feed(data[start : start + size])
        found += opened(opener)
    assert found == payloads
    assert opener.size == 0


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.data())
def test_no_changed_byte_passes(payloads: list[bytes], data: st.DataObject) -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    wire = bytearray(b"".join(sealer.seal(payload) for payload in payloads))
    at = data.draw(st.integers(0, len(wire) - 1))
    wire[at] ^= data.draw(st.integers(1, 255))
    opener.feed(bytes(wire))
    found = []
    try:
        while (payload := opener.next()) is not None:
            found.append(payload)
    except BadFrame:
        pass
    assert len(found) < len(payloads)
    assert found == payloads[: len(found)]


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=2, max_size=5, unique=True), st.data())
def test_frames_that_are_repeated_left_out_or_moved_do_not_pass(payloads: list[bytes], data: st.DataObject) -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    frames = [sealer.seal(payload) for payload in payloads]
    order = data.draw(st.lists(st.integers(0, len(frames) - 1), min_size=1, max_size=6))
    good = 0
    while good < len(order) and order[good] == good:
        good += 1
    opener.feed(b"".join(frames[number] for number in order))
    found = []
    try:
        while (payload := opener.next()) is not None:
            found.append(payload)
    except BadFrame:
        assert good < len(order)
    assert found == payloads[:good]


def test_frame_that_comes_back_to_its_sender_does_not_pass() -> None:
    mine, theirs = Sealer(KEY), Opener(OTHER_KEY)
    theirs.feed(mine.seal(b"spend ten nodes"))
    with pytest.raises(BadFrame):
        theirs.next()


def test_frame_without_its_end_is_none() -> None:
    opener = Opener(KEY)
    opener.feed(Sealer(KEY).seal(b"whole")[:-1])
    assert opener.next() is None


@pytest.mark.parametrize("length", [LONGEST + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_absurd_length_ends_the_link_before_anything_is_kept(length: int) -> None:
    opener = Opener(KEY)
    opener.feed(length.to_bytes(4, "big") + bytes(HEAD))
    with pytest.raises(BadFrame, match=str(length)):
        opener.next()


def test_opener_never_holds_more_than_one_frame_and_what_came_with_its_end() -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    wire = sealer.seal(bytes(LONGEST)) + sealer.seal(b"next")
    most = 0
    for start in range(0, len(wire), 65536):
        opener.feed(wire[start : start + 65536])
        while opener.next() is not None:
            pass
        most = max(most, opener.size)
    assert most <= LONGEST + HEAD
    assert opener.size == 0


def test_what_is_longer_than_a_frame_is_not_sent() -> None:
    with pytest.raises(ValueError, match="longer"):
        Sealer(KEY).seal(bytes(LONGEST + 1))
