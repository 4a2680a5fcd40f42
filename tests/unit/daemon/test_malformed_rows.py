"""A row of the history that cannot be read costs no other row, and no start of the service."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.wire.lean_json import dumps
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.controller import restore
from nodectl.service.daemon.history import decoding
from nodectl.service.daemon.history.batch_text import PackedText, unpacking
from nodectl.service.daemon.history.decoding import Malformed, readable
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.notice import Notice
from nodectl.service.daemon.history.store import Ended, Store
from nodectl.service.daemon.methods import accounting

BAD = ["{", "[]", "7", '{"x": ' * 100_000, "\udcff".encode("utf-8", "backslashreplace").decode()]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(decoding, "_told", set())
    return str(tmp_path / "history.db")


def opened(path: str) -> JobStore:
    return JobStore(Store(path, 1000), "/node", "boot", lambda _: {})


def change(path: str, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()


@pytest.mark.parametrize("bad", [*BAD, '{"name": "no number"}', '{"job_id": 9}', '{"job_id": 1, "details": 7}'])
def test_a_job_whose_row_is_malformed_is_left_out_of_the_queue_and_the_log_says_so(
    path: str, bad: str, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = opened(path)
    for number in (1, 2, 3):
        jobs.put(JobRecord(number))
    jobs.commit()
    change(path, "UPDATE job SET record = ? WHERE id = 1", bad)
    change(path, "UPDATE job SET resources = '{' WHERE id = 2")
    again = opened(path)
    assert [kept.record.job_id for kept in again.waiting()] == [3]
    said = capfd.readouterr().err.splitlines()
    assert [line.partition(" is malformed")[0] for line in said] == [
        f"nodectl daemon: the row of job {number} in history.db" for number in (1, 2)
    ]
    assert list(again.waiting())
    assert not capfd.readouterr().err  # once
    with pytest.raises(sqlite3.Error, match="job 1 in history"):
        again.find(1)


@pytest.mark.parametrize("bad", BAD)
def test_notices_reservations_and_figures_that_are_malformed_are_left_out(path: str, bad: str) -> None:
    jobs = opened(path)
    for number in (1, 2):
        jobs.put_notice(Notice(number, 0, "END", "mail", 1000, {"ok": number}))
        jobs.put_reservation(f"r{number}", {"name": f"r{number}", "users": ["root"], "flags": [], "start_time": 1.0})
    jobs.put_usage([(1000, 1.0, 2.0), (1001, 3.0, 4.0)])
    jobs.put_week([("a", 1.0, 2.0, 3.0), ("b", 1.0, 2.0, 3.0)])
    jobs.commit()
    change(path, "UPDATE notice SET record = ? WHERE job = 1", bad)
    change(path, "UPDATE reservation SET record = ? WHERE name = 'r1'", bad)
    change(path, "UPDATE usage SET used = 'x' WHERE uid = 1000")
    change(path, "UPDATE week SET at = 'x' WHERE user = 'a'")
    again = opened(path)
    assert [one.record for one in again.notices("mail", 1000, 16)] == [{"ok": 2}]
    assert [one["name"] for one in again.reservations()] == ["r2"]
    assert again.usage() == [(1001, 3.0, 4.0)]
    assert again.week() == [("b", 1.0, 2.0, 3.0)]
    bad_ones: list[Mapping[str, Any]] = [{"name": "r1"}, {"users": 7, "flags": []}]
    assert not list(readable(bad_ones, restore._reservation))


@pytest.mark.parametrize("bad", BAD)
def test_steps_that_are_malformed_are_left_out_of_lists_and_of_what_a_reset_lost(path: str, bad: str) -> None:
    store = Store(path, 1000)
    for number in (1, 2):
        store.add([Ended({"job": number, "step": 0, "uid": 1000, "ended": 1.0}, b"")])
        store.note("earlier boot", [{"job": number + 10, "step": 0, "uid": 1000}])
    change(path, "UPDATE step SET record = ? WHERE job = 1", bad)
    change(path, "UPDATE running SET record = ? WHERE job = 11", bad)
    again = Store(path, 1000)
    assert [record["job"] for record in again.latest(None, 10)[0]] == [2]
    again.record_lost("this boot", ())
    assert [record["job"] for record in again.latest(None, 10)[0]] == [12, 2]
    with pytest.raises(sqlite3.Error, match=r"step 1\.0 in history"):
        again.record(1, 0)


@pytest.mark.parametrize("bad", [*BAD, '{"name": "no number"}', '{"job_id": 1, "details": 7}'])
def test_accounting_leaves_out_what_is_malformed(path: str, bad: str) -> None:
    whole = dict.fromkeys(accounting._OF_STEP, 1)
    rows = [(bad,), (dumps({**whole, "job": 2}),)]
    assert [record["job"] for record in readable(rows, accounting._step)] == [2]
    jobs = [(bad, ""), (dumps({"job_id": 2}), bad), (dumps({"job_id": 3}), "")]
    assert [record["job_id"] for record in readable(jobs, accounting._job)][-1] == 3
    assert not {1, None} & {record["job_id"] for record in readable(jobs, accounting._job)}


def test_the_text_of_a_batch_job_that_is_malformed_is_said_to_be_so() -> None:
    for text in (b"", b"\0", b"x\x9cgarbage"):
        with pytest.raises(Malformed, match="a job's script"):
            for _ in unpacking(PackedText(1000, 1, text, text)):
                pass
