"""Handlers of signals that come while a reply must not get lost: each is called, whatever another one raises."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from nodectl.client.api.late_handlers import LateHandlers

USED = (signal.SIGUSR1, signal.SIGUSR2)


class Called(Exception):
    """Raised by a handler."""


@pytest.fixture
def called() -> Iterator[list[int]]:
    """The signals whose handlers were called. Each handler raises Called."""
    numbers: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        raise Called

    before = {number: signal.signal(number, handle) for number in USED}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_handlers_of_all_signals_are_called_although_the_first_one_raises(called: list[int]) -> None:
    def both() -> None:
        with LateHandlers(wanted=True):
            for number in USED:
                os.kill(os.getpid(), number)
            assert called == []

    with pytest.raises(Called):
        both()
    assert sorted(called) == sorted(USED)


def test_a_handler_that_raises_before_it_is_put_off_leaves_all_as_they_were(
    called: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(number) for number in USED]
    replace = signal.signal

    def interrupted(number: int, handler: signal.Handlers) -> object:
        if number == USED[1] and handler != before[1]:
            monkeypatch.undo()
            raise Called
        return replace(number, handler)

    monkeypatch.setattr(signal, "signal", interrupted)
    with pytest.raises(Called), LateHandlers(wanted=True):
        called.append(0)
    assert [signal.getsignal(number) for number in USED] == before
    assert called == []
