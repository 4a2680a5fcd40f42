"""The history's file of an earlier version becomes one of this version, and loses nothing."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from pathlib import Path

import pytest

from nodectl.service.daemon.history import schema
from nodectl.service.daemon.history.store import Ended, Store, StoreError
from unit.daemon import old_history

USERS = (1001, 1002)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/history.db"


def fill(db: sqlite3.Connection, count: int) -> None:
    """Steps as version 1 wrote them, the first ones removed again: numbers and places of rows are not the same."""
    db.execute("INSERT INTO counter VALUES ('job', ?)", (count,))
    for job in range(1, count + 1):
        uid = USERS[job % 2]
        record = {"job": job, "step": 0, "uid": uid, "ended": 1.0 * job, "state": "COMPLETED", "reason": ""}
        row = (job, 0, uid, 1.0 * job, json.dumps(record), zlib.compress(b"trace of %d" % job, 1))
        db.execute("INSERT INTO step VALUES (?, ?, ?, ?, ?, ?)", row)
    db.execute("DELETE FROM step WHERE job < 4")
    db.execute("INSERT INTO running VALUES (?, 0, 'boot', ?)", (count + 1, json.dumps({"job": count + 1})))
    db.execute("INSERT INTO container VALUES ('job_container/namespace', '/var/x')")


@pytest.mark.parametrize("tables", [(old_history.COUNTS_1,), (old_history.INDEX_BEFORE_COUNTS,)])
def test_upgrade_from_the_first_version_loses_nothing(path: Path, tables: tuple[str, ...]) -> None:
    with contextlib.closing(old_history.make(path, old_history.TABLES_1, *tables)) as db:
        fill(db, 30)
        places = db.execute("SELECT rowid, job FROM step ORDER BY rowid").fetchall()
    store = Store(str(path), 100)
    assert [record["job"] for record in store.latest(None, 100)[0]] == list(range(30, 3, -1))
    assert [record["job"] for record in store.latest(USERS[0], 100)[0]] == list(range(30, 3, -2))
    assert store.trace(17, 0) == b"trace of 17"
    assert store.containers() == [("job_container/namespace", "/var/x")]
    assert store.next_job() == 31
    assert list(store.query("SELECT rowid, job FROM step ORDER BY rowid")) == places
    assert list(store.query("SELECT job FROM running")) == [(31,)]
    counts = dict(store.query("SELECT uid, steps FROM kept"))
    assert counts == {USERS[0]: 14, USERS[1]: 13}
    store.add([Ended({"job": 40, "step": 0, "uid": USERS[0], "ended": 1.0}, b"")])
    assert dict(store.query("SELECT uid, steps FROM kept"))[USERS[0]] == 15
    assert list(store.query("PRAGMA user_version")) == [(schema.VERSION,)]
    assert list(store.query("PRAGMA integrity_check")) == [("ok",)]


def test_upgrade_from_the_second_version_adds_the_hours_of_the_week_and_the_notices(path: Path) -> None:
    store = Store(str(path), 10)
    store.add([Ended({"job": 1, "step": 0, "uid": 0, "ended": 1.0}, b"trace")])
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript("DROP TABLE week; DROP TABLE notice")
        db.execute("PRAGMA user_version=2")
    store = Store(str(path), 10)
    assert list(store.query("SELECT * FROM week")) == list(store.query("SELECT * FROM notice")) == []
    assert store.trace(1, 0) == b"trace"
    assert list(store.query("PRAGMA user_version")) == [(schema.VERSION,)]


def test_full_disk_leaves_the_file_of_the_earlier_version_as_it_is(path: Path) -> None:
    with contextlib.closing(old_history.make(path, old_history.TABLES_1, old_history.COUNTS_1)) as db:
        fill(db, 300)
        before = db.execute("SELECT * FROM step").fetchall()
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages + 2}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            schema.prepare(db)
        assert db.execute("SELECT * FROM step").fetchall() == before
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert len(Store(str(path), 1000).latest(None, 1000)[0]) == 297


def test_file_that_is_up_to_date_is_only_read(path: Path) -> None:
    Store(str(path), 10).close()
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        schema.prepare(db)


def test_file_of_a_later_version_is_refused_and_kept(path: Path) -> None:
    Store(str(path), 10).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    with pytest.raises(StoreError, match=rf"another version of nodectl \(format {schema.VERSION + 1}\)"):
        Store(str(path), 10)


def test_run_of_a_job_that_was_queued_again_has_steps_of_its_own(path: Path) -> None:
    store = Store(str(path), 10)
    first = {"job": 1, "step": 0, "uid": 0, "ended": 1.0, "state": "FAILED"}
    second = {**first, "ended": 2.0, "state": "COMPLETED", "restart": 1}
    store.add([Ended(first, b"first"), Ended(second, b"second")])
    found = store.record(1, 0)
    assert found is not None
    assert found["state"] == "COMPLETED"
    assert store.trace(1, 0) == b"second"
    assert len(store.latest(None, 10)[0]) == 2
