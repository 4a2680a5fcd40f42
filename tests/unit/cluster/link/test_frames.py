"""Frames: what was sent comes out in its order, however it is cut, and an absurd length costs nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.cluster.link.frames import HEAD, LONGEST, BadFrame, FrameReader, head

PAYLOADS = st.lists(st.binary(max_size=200), max_size=6)


def frame(payload: bytes) -> bytes:
    return head(payload) + payload


@given(PAYLOADS, st.integers(1, 50))
def test_what_is_framed_comes_out_however_it_is_cut(payloads: list[bytes], size: int) -> None:
    reader = FrameReader()
    data = b"".join(map(frame, payloads))
    found = []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (payload := reader.next()) is not None:
            found.append(payload)
    assert found == payloads
    assert reader.size == 0


def test_frame_without_its_end_is_none() -> None:
    reader = FrameReader()
    reader.feed(frame(b"whole")[:-1])
    assert reader.next() is None


@pytest.mark.parametrize("length", [LONGEST + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_absurd_length_ends_the_link_before_anything_is_kept(length: int) -> None:
    reader = FrameReader()
    reader.feed(length.to_bytes(4, "big") + bytes(HEAD))
    with pytest.raises(BadFrame, match=str(length)):
        reader.next()


def test_reader_never_holds_more_than_one_frame_and_what_came_with_its_end() -> None:
    reader = FrameReader()
    wire = frame(bytes(LONGEST)) + frame(b"next")
    most = 0
    for start in range(0, len(wire), 65536):
        reader.feed(wire[start : start + 65536])
        while reader.next() is not None:
            pass
        most = max(most, reader.size)
    assert most <= LONGEST + HEAD
    assert reader.size == 0


def test_what_is_longer_than_a_frame_is_not_sent() -> None:
    with pytest.raises(ValueError, match="longer"):
        head(bytes(LONGEST + 1))
