"""Where an agent stands, as its environment says."""

from __future__ import annotations

import pytest

from nodectl.cluster.agent import place

_SAID = [("30", 20), ("120", 20), ("15", 10), ("1", 0), ("0", 0), ("UNLIMITED", 20)]


@pytest.mark.parametrize(("slurms", "ours"), _SAID)
def test_steps_have_less_time_to_end_than_slurm_gives_agents(slurms: str, ours: int) -> None:
    assert place.kill_wait({place.KILL_WAIT: slurms}) == ours


def test_steps_have_some_time_where_nobody_has_said_how_much_agents_have() -> None:
    assert place.kill_wait({}) == 20
