"""Which job a login session joins, and which processes are never moved."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.cgroup.delegation import Base
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Refused
from nodectl.service.daemon.methods import logins
from nodectl.service.daemon.methods.logins import Logins

ANN, BEN = 1001, 1002
SCOPE = "/user.slice/user-1001.slice/session-3.scope"
BASE = Base("/mnt", "/steps.service/nodectl", (), {})


def live(job: int, uid: int = ANN, **changes: Any) -> Any:
    """A running first step of a job."""
    step = SimpleNamespace(
        job_id=job, step_id=0, uid=uid, user_name="ann", is_first=True, cgroup=f"{BASE.path}/job_{job}/step_0",
        within="", device_rules=[], allocation=1,
    )  # fmt: skip
    return SimpleNamespace(**{"step": step, "pid": 1, "in_prolog": False, "suspended": False, **changes})


class Registry:
    """Running steps."""

    def __init__(self, *steps: Any) -> None:
        self.live = {(one.step.job_id, 0): one for one in steps}

    def first(self, job: int) -> Any:
        return self.live.get((job, 0))


def owned_by(uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process is this user's."""
    real: Any = os.stat

    def stat(path: Any, **how: Any) -> Any:
        return SimpleNamespace(st_uid=uid) if str(path).startswith("/proc/") else real(path, **how)

    monkeypatch.setattr(os, "stat", stat)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[framing.Peer]:
    """The child of a login session's process, which is this process's parent here; nothing is moved."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    owned_by(0, monkeypatch)
    made = framing.Peer(os.getpid(), 0, 0, pidfd=os.pidfd_open(os.getpid()), place=SCOPE)
    monkeypatch.setattr(logins, "cgroup_of", lambda _: made.place)
    yield made
    made.let_go()


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cgroups of steps to which a session's process was moved."""
    found: list[str] = []
    monkeypatch.setattr(logins._Session, "_move", lambda _self, path, _step: found.append(path))
    return found


def join(methods: Logins, peer: framing.Peer, uid: int = ANN) -> Any:
    call: Any = SimpleNamespace(peer=peer, parameters={"uid": uid})
    return asyncio.run(methods.join(call))


def of(*steps: Any) -> Logins:
    registry: Any = Registry(*steps)
    return Logins(BASE, registry)


def choose(methods: Logins, job: int | None, uid: int = ANN) -> Any:
    call: Any = SimpleNamespace(
        peer=framing.Peer(1, uid, uid, place="/elsewhere"), parameters={} if job is None else {"job": job}
    )
    return methods.login(call)


@pytest.mark.parametrize("state", [{"suspended": True}, {"in_prolog": True}, {"pid": 0}])
def test_a_job_that_does_not_run_takes_no_session(peer: framing.Peer, moved: list[str], state: dict[str, Any]) -> None:
    methods = of(live(7), live(9, **state), live(8), live(10, BEN))
    assert join(methods, peer)["job"] == 8
    assert moved == ["/mnt/steps.service/nodectl/job_8/step_0"]


def test_a_job_that_ends_in_this_moment_leaves_the_session_to_the_next_one(
    peer: framing.Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move(_self: object, path: str, _step: object) -> None:
        if "job_8" in path:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(logins._Session, "_move", move)
    assert join(of(live(7), live(8)), peer)["job"] == 7
    assert join(of(live(8)), peer) == {"job": 0, "why": "job 8: No such file or directory"}


def test_a_choice_holds_for_its_user_as_long_as_the_job_runs(peer: framing.Peer, moved: list[str]) -> None:
    steps = [live(7), live(8), live(10, BEN)]
    methods = of(*steps)
    assert choose(methods, 7) == {"job": 7, "chosen": True, "inside": 0, "environment": {}}
    assert choose(methods, None, BEN)["job"] == 10
    assert join(methods, peer)["job"] == 7
    assert choose(methods, 0)["job"] == 8
    with pytest.raises(Refused, match="no job 10 of yours"):
        choose(methods, 10)
    choose(methods, 7)
    methods._registry.live.pop((7, 0))
    assert choose(methods, None) == {"job": 8, "chosen": False, "inside": 0, "environment": {}}
    assert len(moved) == 1


@pytest.mark.parametrize("unit", ["/system.slice/ssh.service", "/user.slice/user-1001.slice/user@1001.service"])
def test_a_process_of_a_service_is_not_moved(peer: framing.Peer, moved: list[str], unit: str) -> None:
    """It may be the server itself; or PAM calls in the wrong order, and would take the session out again."""
    peer.place = unit
    with pytest.raises(Refused, match="after pam_systemd"):
        join(of(live(7)), peer)
    assert moved == []


def test_a_process_of_a_job_stays_in_its_job(peer: framing.Peer, moved: list[str]) -> None:
    peer.place = f"{BASE.path}/job_5/step_0/user/task_0"
    assert (join(of(live(7)), peer), moved) == ({"job": 5, "why": ""}, [])


def test_no_process_of_a_user_is_taken_for_that_of_a_session(
    peer: framing.Peer, moved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service manager of the user's adopts the helper of a session that was killed."""
    owned_by(ANN, monkeypatch)
    with pytest.raises(Refused, match="no child of a login session"):
        join(of(live(7)), peer)
    assert moved == []


def test_no_process_that_adopts_orphans_is_taken_for_that_of_a_session(
    peer: framing.Peer, moved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user kills their su(1) while it waits for the helper, and a step runner of root's adopts the helper."""
    monkeypatch.setattr(logins, "cgroup_of", lambda _: f"{BASE.path}/runners")
    with pytest.raises(Refused, match="no child of a login session"):
        join(of(live(7)), peer)
    assert moved == []


def test_only_root_moves_sessions(peer: framing.Peer, moved: list[str]) -> None:
    peer.uid = ANN
    with pytest.raises(Refused, match="only root"):
        join(of(live(7)), peer)
    assert moved == []
