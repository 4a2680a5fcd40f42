"""What a batch job is started with comes back as it was, and others are served while it is packed and unpacked."""

from __future__ import annotations

import os

import pytest

from nodectl.service.daemon.history.batch_text import BatchText, PackedText, packing, unpacking
from nodectl.service.daemon.history.decoding import Malformed
from unit.daemon.packed import at_once

_MIB = 1 << 20


@pytest.mark.parametrize("script", [os.urandom(4 * _MIB), bytes(4 * _MIB), b""], ids=["random", "zeros", "empty"])
def test_others_are_served_while_a_large_text_is_packed_and_unpacked(script: bytes) -> None:
    """Zeros are a few kilobytes when they are packed, and as long as all others when they are unpacked."""
    text = BatchText(1001, {"argv": ["x" * _MIB]}, script)
    packed, pieces = at_once(packing(text))
    assert pieces > len(script) // _MIB * 8
    again, pieces = at_once(unpacking(packed))
    assert pieces > len(script) // _MIB * 8
    assert again == text
    assert packed.size >= len(script) + _MIB


def test_a_text_that_was_cut_off_is_refused() -> None:
    packed, _ = at_once(packing(BatchText(1001, {}, os.urandom(9000))))
    with pytest.raises(Malformed, match="ends too early"):
        at_once(unpacking(PackedText(1001, 0, packed.script[:4000], packed.request)))
