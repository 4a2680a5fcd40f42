"""A queue of ten users over a reset of the machine: what was told before it was true, and nothing is lost by it.
`mid_queue.py` made the queue.
"""

from __future__ import annotations

import json
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vm import mid_queue, mid_step, service
from vm.mid_queue import queue, row
from vm.service import UNIT, wait_until

pytestmark = [pytest.mark.reset, pytest.mark.queue]


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    """In place of the others' fixture: the service is looked at as the boot has left it."""
    yield
    assert "Traceback" not in service.logged()


@pytest.fixture(scope="module")
def before() -> dict[str, Any]:
    """What was noted before the reset."""
    found: dict[str, Any] = json.loads(mid_queue.NOTES.read_text())
    assert found["boot"] != mid_step.boot(), "the machine was not reset"
    return found


def home(user: str) -> Path:
    return Path(pwd.getpwnam(user).pw_dir)


def acct(*words: str) -> list[list[str]]:
    """Rows of `nodectl acct`."""
    return [line.split("|") for line in service.nodectl("acct", "-nPX", "-S", "now-1day", *words).splitlines()]


def test_queue_told_who_ran_and_why_others_waited(before: dict[str, Any]) -> None:
    rows = before["rows"]
    assert {name: found["state"] for name, found in rows.items()} == {
        "ann": "RUNNING", "ben": "RUNNING", "cleo": "PENDING", "dan": "PENDING", "ann again": "PENDING",
        "eve": "PENDING", "finn": "PENDING",
    }  # fmt: skip
    assert {name: found["reason"] for name, found in rows.items() if found["state"] == "PENDING"} == {
        "cleo": "Dependency",
        "dan": "Resources",
        "ann again": "QOSMaxCpuPerUserLimit",
        "eve": "JobHeldUser",
        "finn": "BeginTime",
    }
    assert rows["ann"]["cpus"] + rows["ben"]["cpus"] == mid_queue.CPUS
    assert not set(rows["ann"]["cpu_list"].split(",")) & set(rows["ben"]["cpu_list"].split(","))


def test_explain_told_for_whom_and_until_when(before: dict[str, Any]) -> None:
    jobs, explained = before["jobs"], before["explained"]
    for name in ("cleo", "dan", "ann again", "eve", "finn"):
        assert explained[name]["reason"] == before["rows"][name]["reason"]
        assert explained[name]["words"]
    waited_for = " ".join(map(str, explained["dan"]["for"]))
    assert str(jobs["ann"]) in waited_for or str(jobs["ben"]) in waited_for
    assert str(jobs["ann"]) in json.dumps(explained["cleo"])
    assert "Resources" in before["words"]
    begins = explained["finn"]["start"]
    assert begins is None or begins > before["rows"]["finn"]["submit"] + 80_000


def test_who_has_submitted_too_much_is_told_in_one_line(before: dict[str, Any]) -> None:
    status, out, err = before["refused"]
    assert (status != 0, out, err.count("\n")) == (True, "", 1)


def test_no_accepted_job_is_lost(before: dict[str, Any]) -> None:
    assert service.is_active(UNIT)
    accounts = {int(raw): user for raw, user in acct("-o", "jobidraw,user")}
    known = {found["job"]: found["user"] for found in queue()} | accounts
    assert {*before["jobs"].values(), *before["gus"]} <= known.keys()
    assert list(known.values()).count("hal") == 1
    assert [row(job)["user"] for job in before["gus"]] == ["gus"] * mid_queue.MOST_SUBMITTED


def test_held_and_later_jobs_wait_as_before(before: dict[str, Any]) -> None:
    for name in ("eve", "finn"):
        old, new = before["rows"][name], row(before["jobs"][name])
        for what in ("state", "reason", "submit", "held", "user", "name"):
            assert new[what] == old[what], (name, what)


def test_what_ran_runs_again_and_everything_ends_once(before: dict[str, Any]) -> None:
    jobs = before["jobs"]
    cleo = row(jobs["cleo"])
    assert (cleo["reason"], cleo["array_tasks"]) == ("Dependency", "0-3")
    for user in ("ann", "ben"):
        (home(user) / "go").touch()
    ending = [jobs[name] for name in ("ann", "ben", "dan", "ann again", "cleo")]
    wait_until(lambda: not {found["job"] for found in queue()} & set(ending), "all that may start has ended")
    array = str(jobs["cleo"])  # other tests have had a user of this name
    wait_until(lambda: len(acct("-j", array, "-o", "state")) == 4, "all tasks of the array are in the accounts")
    states = acct("-j", ",".join(map(str, ending)), "-o", "state") + acct("-u", "hal", "-o", "state")
    assert {state for (state,) in states} == {"COMPLETED"}
    assert [(home(user) / "ran").read_text() for user in ("ben", "dan", "hal")] == ["1\n", "0\n", "0\n"]
    assert sorted((home("ann") / "ran").read_text().split()) == ["0", "1"]
    assert sorted((home("cleo") / "ran").read_text().split()) == ["0", "1", "2", "3"]


def test_accounts_tell_of_both_runs_and_of_the_order(before: dict[str, Any]) -> None:
    jobs = before["jobs"]
    runs = acct("-D", "-j", str(jobs["ann"]), "-o", "restarts,state")
    assert [run[0] for run in runs] == ["0", "1"]
    assert runs[0][1] in ("NODE_FAIL", "REQUEUED")
    assert runs[1][1] == "COMPLETED"
    ((ended,),) = acct("-j", str(jobs["ann"]), "-o", "end")
    assert all(started >= ended for (started,) in acct("-j", str(jobs["cleo"]), "-o", "start"))
    report = json.loads(service.nodectl("report", "--json", "--by=total"))
    assert {found["user"] for found in report["total"]} >= {"ann", "ben", "cleo", "dan", "hal"}
    service.assert_clean()
