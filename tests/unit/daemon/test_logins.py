"""Which job a login session joins, and which processes are never moved."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.cgroup import tree
from nodectl.launch.cgroup.delegation import Base
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Refused
from nodectl.service.daemon.methods import logins
from nodectl.service.daemon.methods.logins import Logins

# A session's process, and its child, whose number it prints.
SESSION = "sleep 1000 & echo $!; wait; exec sleep 1000"
PATIENCE = 60  # seconds
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


def test_slow_sessions_of_one_user_hold_up_no_others_and_no_other_work(
    peer: framing.Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel lets none of ann's sessions into a cgroup; beyond a number, further ones hear so."""
    lets = threading.Event()

    def move(_self: object, path: str, _step: object) -> None:
        if "job_7" in path:
            lets.wait()

    def begin(methods: Logins, uid: int) -> Any:
        call: Any = SimpleNamespace(peer=peer, parameters={"uid": uid})
        return methods.join(call)

    async def play() -> None:
        methods = of(live(7), live(8, BEN))
        slow = [asyncio.ensure_future(begin(methods, ANN)) for _ in range(logins._MOST)]
        try:
            await asyncio.sleep(0)
            assert await asyncio.wait_for(begin(methods, ANN), PATIENCE) == {
                "job": 0, "why": f"{logins._MOST} other sessions of yours begin at this moment",
            }  # fmt: skip
            assert (await asyncio.wait_for(begin(methods, BEN), PATIENCE))["job"] == 8
            assert await asyncio.wait_for(asyncio.to_thread(os.getpid), PATIENCE) == os.getpid()
        finally:
            lets.set()
        assert [answer["job"] for answer in await asyncio.gather(*slow)] == [7] * logins._MOST
        assert (await begin(methods, ANN))["job"] == 7

    monkeypatch.setattr(logins._Session, "_move", move)
    asyncio.run(play())


class Begun:
    """A session that begins: its process, and the child for which it waits. `added`: the cgroups it was moved to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        helper = int(process.stdout.readline())
        self.peer = framing.Peer(helper, 0, 0, pidfd=os.pidfd_open(helper), place=SCOPE)
        self.added: list[str] = []
        self.session = logins._Session(self.peer, BASE.mount)

    def give_up(self) -> None:
        """The child ends."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.peer.pidfd, signal.SIGKILL)
        select.select([self.peer.pidfd], [], [], PATIENCE)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begun]:
    owned_by(0, monkeypatch)
    monkeypatch.setattr(logins, "cgroup_of", lambda _: SCOPE)
    monkeypatch.setattr(tree, "make_among", lambda path, name, **_: tree.Group(f"{path}/user/{name}"))
    with subprocess.Popen(["sh", "-c", SESSION], stdout=subprocess.PIPE, text=True) as process:
        try:
            made = Begun(process)
        except BaseException:
            process.kill()
            raise
        monkeypatch.setattr(tree.Group, "add", lambda group, _pid: made.added.append(group.full_path))
        try:
            yield made
        finally:
            made.give_up()
            process.kill()
            made.session.close()
            made.peer.let_go()


INTO = f"{BASE.mount}{BASE.path}/job_7/step_0/user/logins"


def test_a_session_that_waits_is_moved(begun: Begun) -> None:
    step = live(7).step
    assert begun.session.join([step]) == (step, "")
    assert begun.added == [INTO]


def test_a_session_that_no_longer_waits_is_not_moved(begun: Begun) -> None:
    """Its child has given up after five seconds, and told PAM that the session is in no job."""
    begun.give_up()
    joined, why = begun.session.join([live(7).step])
    assert (joined, "no longer waits" in why, begun.added) == (None, True, [])


def test_a_session_that_stops_waiting_while_it_is_moved_comes_back(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(begun.session.pid)

    def add(group: tree.Group, _pid: int) -> None:
        begun.added.append(group.full_path)
        begun.give_up()

    monkeypatch.setattr(tree.Group, "add", add)
    pid = begun.session.pid
    joined, why = begun.session.join([live(7).step])
    assert (joined, "no longer waits" in why) == (None, True)
    assert begun.added == [INTO, f"{BASE.mount}{SCOPE}"]
    assert os.sched_getaffinity(pid) == before
