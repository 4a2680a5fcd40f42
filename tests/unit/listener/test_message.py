"""What a session process asks of a message before the daemon gets it."""

from __future__ import annotations

import json

import pytest

from nodectl.model.wire import framing
from nodectl.service.listener.message import LAUNCH, checked

_MANY = 110_000


@pytest.mark.parametrize("value", [[[]] * _MANY, {f"k{n}": 0 for n in range(_MANY)}], ids=["lists", "members"])
def test_a_call_of_more_values_than_are_read_in_a_slice_is_refused(value: object) -> None:
    with pytest.raises(framing.BrokenWire, match="message of more than 100000 values"):
        checked(json.dumps({"method": LAUNCH, "parameters": {"x": value}}).encode())


def test_a_launch_of_many_words_and_commas_is_taken() -> None:
    words = ["a,b,c,[,{"] * 65_536
    environment = {f"V{n}": "," * 50 for n in range(16_384)}
    message = {"method": LAUNCH, "parameters": {"request": {"argv": words, "environment": environment}}}
    assert checked(json.dumps(message).encode()) == message
