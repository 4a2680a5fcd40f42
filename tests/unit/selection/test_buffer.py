"""Buf gives back what was packed, and tells where bytes end or lie."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.selection.buffer import MAX_SIZE, MAX_STRING, BadBuffer, Buf

TEXT = st.none() | st.text(st.characters(exclude_categories=()), max_size=40).filter(
    lambda text: all(not 0xD800 <= ord(one) <= 0xDFFF for one in text)
)
VALUES = st.lists(
    st.tuples(st.just("8"), st.integers(0, 2**8 - 1))
    | st.tuples(st.just("16"), st.integers(0, 2**16 - 1))
    | st.tuples(st.just("32"), st.integers(0, 2**32 - 1))
    | st.tuples(st.just("64"), st.integers(0, 2**64 - 1))
    | st.tuples(st.just("double"), st.floats(allow_nan=False))
    | st.tuples(st.just("bool"), st.booleans())
    | st.tuples(st.just("mem"), st.binary(max_size=40))
    | st.tuples(st.just("str"), TEXT)
)


@given(VALUES)
def test_what_was_packed_comes_back(values: list[tuple[str, object]]) -> None:
    buffer = Buf()
    for kind, value in values:
        getattr(buffer, f"pack{kind}")(value)
    again = Buf(bytes(buffer))
    assert [getattr(again, f"unpack{kind}")() for kind, _ in values] == [value for _, value in values]
    assert again.remaining() == 0
    with pytest.raises(BadBuffer):
        again.unpack8()


@given(st.binary(max_size=64), st.lists(st.sampled_from(["8", "16", "32", "64", "double", "bool", "mem", "str"])))
def test_foreign_bytes_are_values_or_refused(data: bytes, kinds: list[str]) -> None:
    buffer = Buf(data)
    for kind in kinds:
        try:
            getattr(buffer, f"unpack{kind}")()
        except BadBuffer:
            return


@pytest.mark.parametrize(
    "pack",
    [
        lambda buffer: buffer.pack16(1 << 16),
        lambda buffer: buffer.pack32(-1),
        lambda buffer: buffer.pack64("7"),
        lambda buffer: buffer.packmem(b"x" * (MAX_STRING + 1)),
        lambda buffer: [buffer.packmem(b"x" * MAX_STRING) for _ in range(MAX_SIZE // MAX_STRING + 1)],
    ],
)
def test_what_does_not_fit_is_refused(pack: Callable[[Buf], object]) -> None:
    with pytest.raises(BadBuffer):
        pack(Buf())


def test_numbers_are_in_network_order() -> None:
    buffer = Buf()
    buffer.pack32(0x01020304)
    buffer.packstr("ab")
    assert bytes(buffer) == b"\1\2\3\4\0\0\0\2ab"
