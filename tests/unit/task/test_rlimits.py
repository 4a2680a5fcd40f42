"""Which limits a task sets, and who hears of those that it cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodectl import messages
from nodectl.launch.task import rlimits


@pytest.fixture
def lines() -> Iterator[list[str]]:
    heard: list[str] = []
    yield heard
    messages.listen(lambda _: None)


@pytest.mark.parametrize(("level", "told"), [(messages.INFO, b"\0"), (messages.VERBOSE, b"nodectl: soft limit")])
def test_a_failure_is_told_to_who_asks(lines: list[str], level: int, told: bytes) -> None:
    messages.listen(lines.append, level=level)
    ((*_, what),) = rlimits.soft_limits({"NOFILE": 12})
    assert what.startswith(told)
