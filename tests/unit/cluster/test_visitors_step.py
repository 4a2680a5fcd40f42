"""What comes through the door from a confined step is no less confined; who cannot be told counts as one of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import pytest

from nodectl.cluster.agent.visitors_step import VisitorsStep
from nodectl.tracing.recorder import cgroup_of
from nodectl.wire import framing
from nodectl.wire.dispatch import Refused

REQUEST = {"argv": ["true"]}
ELSEWHERE = "/no/such/cgroup"


class Calls:
    """A daemon that runs steps of these cgroups and levels."""

    def __init__(self, *steps: tuple[str, str]) -> None:
        self._steps = [
            {"job": 7, "step": number, "uid": os.geteuid(), "cgroup": cgroup, "secure": level}
            for number, (cgroup, level) in enumerate(steps)
        ]

    async def ask(self, method: str, _: Mapping[str, object]) -> tuple[Mapping[str, Any], list[int]]:
        assert method == "List"
        return {"steps": self._steps}, []


def held(
    *steps: tuple[str, str], known: bool = True, method: str = "Launch", default: str = "none", **request: object
) -> Mapping[str, Any]:
    """The request that goes on to the leader, of a visitor that is this process."""
    peer = framing.Peer(os.getpid(), os.geteuid(), 0, pidfd=os.pidfd_open(os.getpid()) if known else -1)
    calls: Any = Calls(*steps)
    try:
        got = asyncio.run(VisitorsStep(calls, default).held(peer, method, {"request": {**REQUEST, **request}}))
    finally:
        peer.let_go()
    request = got["request"]
    return request


def own() -> str:
    return cgroup_of(os.getpid())


@pytest.mark.parametrize("steps", [[], [(ELSEWHERE, "strict")], [("", "strict")], [(own(), "none")]])
def test_who_is_in_no_confined_step_asks_for_any_level(steps: list[tuple[str, str]]) -> None:
    assert held(*steps) == REQUEST
    assert held(*steps, secure="none") == {**REQUEST, "secure": "none"}


def test_a_step_has_at_least_the_level_of_who_asks() -> None:
    assert held((own(), "default")) == {**REQUEST, "secure": "default"}
    assert held((own(), "default"), default="strict")["secure"] == "strict"
    assert held((own(), "default"), secure="strict")["secure"] == "strict"
    with pytest.raises(Refused, match=r"secure: none is below default, the level of step 7\.0, which asks"):
        held((own(), "default"), secure="none")


@pytest.mark.parametrize("level", [{}, {"secure": "none"}, {"secure": "strict"}])
def test_a_strict_step_starts_no_other(level: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=r"step 7\.1, at strict, starts no other"):
        held((ELSEWHERE, "default"), (own(), "strict"), **level)


def test_a_confined_step_looks_into_no_other() -> None:
    with pytest.raises(Refused, match=r"from step 7\.0, at default, no other is looked into"):
        held((own(), "default"), method="View")


def test_who_cannot_be_told_may_be_of_any_step() -> None:
    with pytest.raises(Refused, match=r"step 7\.1, at strict, starts no other"):
        held((ELSEWHERE, "default"), (ELSEWHERE, "strict"), known=False)
