"""A step's times where somebody sets the machine's clock while it runs."""

from __future__ import annotations

import time

import pytest

from nodectl.launch.stepd.accounting import StepClock

DAY = 86_400.0


def test_a_clock_that_is_set_meanwhile_moves_no_time_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"wall": 1000.0, "boot": 50.0}
    monkeypatch.setattr(time, "time", lambda: times["wall"])
    monkeypatch.setattr(time, "clock_gettime", lambda _: times["boot"])
    clock = StepClock()
    times.update(wall=1003.0 + DAY, boot=53.0)
    assert (clock.started, clock.now(), clock.set_forward()) == (1000.0, 1003.0, DAY)
    times.update(wall=1005.0 - DAY, boot=55.0)
    assert (clock.now(), clock.set_forward()) == (1005.0, -DAY)
