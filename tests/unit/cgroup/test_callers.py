"""In which confined step a caller is: by its cgroup when it connected, or as one of those that it may be in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from nodectl.launch.cgroup import callers
from nodectl.launch.cgroup.callers import Callers, Origin
from nodectl.model.wire.dispatch import Call, Refused
from nodectl.model.wire.framing import Peer
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.admission.confinement import ConfinementLevels

BASE = "/nodectl"
USER, OTHER, ROOT = 1000, 1001, 0
WITH_CGROUPS = Callers(BASE, has_cgroups=True)


class Step(NamedTuple):
    job_id: int = 7
    secure: str = "strict"
    cgroup: str = f"{BASE}/job_7/step_0"
    uid: int = USER

    def __str__(self) -> str:
        return f"{self.job_id}.0"


STRICT, DEFAULT = Step(), Step(8, "default", f"{BASE}/job_8/step_0")
NONE = Step(9, "none", f"{BASE}/job_9/step_0")
RUNNING = [STRICT, DEFAULT, NONE]


@pytest.fixture
def pidfd() -> Iterator[int]:
    """Of a process that lives."""
    fd = os.pidfd_open(os.getpid())
    yield fd
    os.close(fd)


def peer(pidfd: int, place: str, uid: int = USER, inode: int = -1) -> Peer:
    return Peer(os.getpid(), uid, uid, (), pidfd, inode, place)


def has_it(monkeypatch: pytest.MonkeyPatch, *, caller: bool, we: bool = False) -> None:
    """Who has no_new_privs."""
    monkeypatch.setattr(callers, "has_no_new_privs", lambda pid="self": we if pid == "self" else caller)


@pytest.mark.parametrize("way", ["command", "mail"])
def test_a_command_of_notify_and_a_mail_start_and_change_nothing(pidfd: int, way: str) -> None:
    with pytest.raises(Refused, match="a mail or a command of --notify: it starts and changes nothing"):
        WITH_CGROUPS.origin(peer(pidfd, f"{BASE}/notices/{way}-1000"), RUNNING)
    assert WITH_CGROUPS.origin(peer(pidfd, f"{BASE}/notices/site-1000"), RUNNING) is None


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (f"{BASE}/job_7/step_0/user/task_0", "step 7.0"),
        (f"{BASE}/job_8/step_0/user", "step 8.0"),
        (f"{BASE}/job_9/step_0/user/task_1", "None"),
        ("/user.slice", "None"),
        (f"{BASE}/runners", "None"),
    ],
)
def test_a_caller_is_where_it_was_when_it_connected(pidfd: int, place: str, found: str) -> None:
    assert str(WITH_CGROUPS.origin(peer(pidfd, place), RUNNING)) == found
    assert str(WITH_CGROUPS.origin(peer(-1, place), RUNNING)) == found, "and also when it has ended since"


@pytest.mark.parametrize(
    "place", [f"{BASE}/job_7/step_1/user/task_0", "/slurm/job_5/step_0/user/nodectl/step_3/user/task_0"]
)
def test_a_caller_of_a_step_that_is_over_starts_nothing(pidfd: int, place: str) -> None:
    with pytest.raises(Refused, match="is of a step that is over: it starts and changes nothing"):
        WITH_CGROUPS.origin(peer(pidfd, place), RUNNING)


@pytest.mark.parametrize("running", [[], [NONE], RUNNING])
def test_a_caller_that_had_ended_when_it_was_accepted_starts_nothing(running: list[Step]) -> None:
    with pytest.raises(Refused, match="connected and has ended: it starts and changes nothing"):
        WITH_CGROUPS.origin(peer(-1, ""), running)


def test_a_caller_that_nothing_tells_may_be_in_the_strictest_step_of_its_user(
    pidfd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_it(monkeypatch, caller=True)
    assert str(WITH_CGROUPS.origin(peer(pidfd, ""), RUNNING)) == "step 7.0 (of which the caller may be)"
    assert WITH_CGROUPS.origin(peer(pidfd, "", OTHER), RUNNING) is None
    has_it(monkeypatch, caller=False)
    assert WITH_CGROUPS.origin(peer(pidfd, ""), RUNNING) is None
    unproven = peer(pidfd, "/user.slice", inode=1)  # another process may have had its number
    assert str(WITH_CGROUPS.origin(unproven, RUNNING)) == "step 7.0 (of which the caller may be)"


def test_root_may_be_in_roots_steps_alone_and_others_in_those_that_can_change_their_user(
    pidfd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_it(monkeypatch, caller=True)
    of_root = [Step(1, "default", uid=ROOT), Step(2, "strict", uid=ROOT)]
    assert str(WITH_CGROUPS.origin(peer(pidfd, ""), of_root)) == "step 1.0 (of which the caller may be)"
    assert WITH_CGROUPS.origin(peer(pidfd, "", ROOT), RUNNING) is None


def test_the_step_that_is_entered_does_not_count(pidfd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    has_it(monkeypatch, caller=True)
    assert WITH_CGROUPS.origin(peer(pidfd, STRICT.cgroup), RUNNING, STRICT) is None
    assert str(WITH_CGROUPS.origin(peer(pidfd, ""), RUNNING, STRICT)) == "step 8.0 (of which the caller may be)"


def test_without_cgroups_who_may_gain_privileges_is_in_no_step(pidfd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    has_it(monkeypatch, caller=False)
    running = [STRICT._replace(cgroup="")]
    assert Callers("", has_cgroups=False).origin(peer(pidfd, "/user.slice"), running) is None
    has_it(monkeypatch, caller=True)
    found = Callers("", has_cgroups=False).origin(peer(pidfd, "/user.slice"), running)
    assert str(found) == "step 7.0 (of which the caller may be)"


def test_without_cgroups_who_has_outlived_a_step_starts_nothing(pidfd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    has_it(monkeypatch, caller=True)
    with pytest.raises(Refused, match="has no_new_privs, as what is left of a confined step"):
        Callers("", has_cgroups=False).origin(peer(pidfd, "/user.slice"), [])
    with pytest.raises(Refused, match="connected and has ended"):
        Callers("", has_cgroups=False).origin(peer(-1, "/user.slice"), [])


def test_strict_is_refused_where_nothing_tells_its_processes_from_others(
    pidfd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, say, all processes have no_new_privs."""
    has_it(monkeypatch, caller=True, we=True)
    levels = ConfinementLevels(build({"secure": "none"}), list, "")
    with pytest.raises(Refused, match="secure: strict is not possible here: without cgroups"):
        levels.level_of({"secure": "strict"}, peer(pidfd, ""))
    assert levels.level_of({}, peer(pidfd, "")) == "none"
    os.close(levels.programs)


NAMES = {7: "3_9", 3: "3_5", 8: "8"}
"""Of jobs: task 9 of array 3, its task 5, which has the array's own number as the last one has, and no task."""


@pytest.mark.parametrize(
    ("job", "own", "others"),
    [
        (7, [{"job": 7}, {"job": "7"}, {"jobs": ["3_9", "7"]}], [{"job": "3"}, {"jobs": ["3_9", "3_5"]}, {"jobs": []}]),
        (3, [{"job": 3}, {"job": "3_5"}], [{"job": "3"}, {"jobs": ["3"]}, {"jobs": ["3_5", "3"]}, {"job": "3_[5-9]"}]),
        (8, [{"job": 8}, {"jobs": ["8"]}], [{"job": "8_1"}, {"job": 7}, {"users": ["me"]}, {"job": ""}]),
    ],
)
def test_a_strict_step_names_its_own_job_and_not_the_array_that_has_its_number(
    job: int, own: list[dict[str, object]], others: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = ConfinementLevels(build({"secure": "none"}), list, "")
    monkeypatch.setattr(levels, "_origin", lambda _: Origin(Step(job), is_certain=True))
    for parameters in own:
        levels.check_change(_change(parameters), lambda number: NAMES[number])
    for parameters in others:
        with pytest.raises(Refused, match="changes nothing but its own job"):
            levels.check_change(_change(parameters), lambda number: NAMES[number])
    os.close(levels.programs)


def _change(parameters: dict[str, object]) -> Call:
    call = Call({"method": "org.nodectl.Hold"}, Peer(1, USER, USER))
    call.parameters = parameters
    return call
