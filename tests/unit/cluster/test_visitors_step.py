"""What comes through the gateway from a confined step is no less confined; who cannot be told counts as one of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import pytest

from nodectl.cluster.agent.visitors_step import VisitorsStep
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import callers
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Refused

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


GONE, ALIVE = "gone", "alive"


def held(
    *steps: tuple[str, str], who: str = ALIVE, method: str = "Launch", default: str = "none",
    has_cgroups: bool = True, words: Mapping[str, object] | None = None, **request: object,
) -> Mapping[str, Any]:  # fmt: skip
    """What goes on to the leader, of a visitor that is this process: of a launch the request."""
    pidfd = os.pidfd_open(os.getpid()) if who == ALIVE else -1
    peer = framing.Peer(os.getpid(), os.geteuid(), 0, pidfd=pidfd, place=cgroup_of() if who == ALIVE else "")
    calls: Any = Calls(*steps)
    step_of = VisitorsStep(calls, default, has_cgroups=has_cgroups)
    try:
        got = asyncio.run(step_of.held(peer, method, words or {"request": {**REQUEST, **request}}))
    finally:
        peer.let_go()
    return got if words else got["request"]


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


@pytest.mark.parametrize("steps", [[], [(own(), "none")], [(ELSEWHERE, "strict")]])
@pytest.mark.parametrize("method", ["Launch", "Cancel"])
def test_who_has_gone_starts_and_changes_nothing(steps: list[tuple[str, str]], method: str) -> None:
    with pytest.raises(Refused, match="has ended: it starts and changes nothing"):
        held(*steps, who=GONE, method=method)


def test_without_cgroups_a_confined_process_may_be_of_any_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [("", "default"), ("", "strict")]
    assert held(*steps, has_cgroups=False, secure="none")["secure"] == "none"
    monkeypatch.setattr(callers, "has_no_new_privs", lambda pid="self": pid != "self")
    with pytest.raises(Refused, match=r"step 7\.1 \(of which the caller may be\), at strict, starts no other"):
        held(*steps, has_cgroups=False)
    with pytest.raises(Refused, match="has no_new_privs, as what is left of a confined step"):
        held(has_cgroups=False)


OTHERS = [
    ("Signal", {"job": 7, "step": 1, "signal": 9}),
    ("Suspend", {"job": 7, "step": 1}),
    ("SuspendJob", {"job": "7"}),
    ("Cancel", {"jobs": ["7.0", "7.1"]}),
    ("Cancel", {"users": ["root"]}),
]


@pytest.mark.parametrize(("method", "words"), OTHERS)
def test_a_strict_step_changes_no_other(method: str, words: dict[str, object]) -> None:
    with pytest.raises(Refused, match=r"secure: step 7\.0, at strict, changes nothing but itself"):
        held((own(), "strict"), (ELSEWHERE, "none"), method=method, words=words)
    assert held((own(), "default"), (ELSEWHERE, "none"), method=method, words=words) == words


@pytest.mark.parametrize(
    ("method", "words"), [("Signal", {"job": 7, "step": 0, "signal": 9}), ("Cancel", {"jobs": ["7.0"]})]
)
def test_a_strict_step_changes_itself(method: str, words: dict[str, object]) -> None:
    assert held((own(), "strict"), method=method, words=words) == words
