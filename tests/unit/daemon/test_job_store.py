"""Jobs on the disk: what is written when, what comes back, and a full disk at each write."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.states import REQUEUED
from nodectl.selection.records import BATCH, JobDetails, JobRecord
from nodectl.service.daemon.history.batch_text import BatchText
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.store import Ended, Store, StoreError
from unit.daemon.packed import packed, unpacked

ODD = os.fsdecode(b"\xff")
REQUEST = {"argv": [f"job{ODD}.sh", "1"], "environment": {"A": ODD}}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state/history.db")


def opened(path: str, node: str = "/run/one") -> tuple[Store, JobStore]:
    store = Store(path, 100)
    return store, JobStore(store, node, "boot", lambda job: {"here": {"mask": "3"}} if job.job_id % 2 else {})


def a_job(number: int, **values: object) -> JobRecord:
    details = JobDetails(argv=(f"x{ODD}", "y"), gres={"gpu": 2})
    return JobRecord(number, user_id=1001, held_by=BATCH, details=details, **values)  # type: ignore[arg-type]


def fill_the_disk(store: Store) -> None:
    """Lets the file have no page more, with no room left in those that it has."""
    list(store.query(f"PRAGMA max_page_count={next(store.query('PRAGMA page_count'))[0]}"))
    for size in (3000, 300, 30, 1):
        try:
            while True:
                list(store.query("INSERT INTO counter VALUES (hex(randomblob(8)) || hex(zeroblob(?)), 0)", (size,)))
        except sqlite3.OperationalError:
            continue


def test_accepted_job_is_there_for_the_next_daemon(path: str) -> None:
    _, jobs = opened(path)
    jobs.put(a_job(7, name="n", array_tasks="0-9"))
    jobs.put_batch(7, packed(BatchText(1001, REQUEST, b"#!/bin/sh\n\xff")))
    jobs.commit()
    assert not jobs.is_behind
    _, again = opened(path)  # as nothing closed the first one
    (found,) = again.waiting()
    assert found.record.as_json() == a_job(7, name="n", array_tasks="0-9").as_json()
    assert not found.resources
    assert unpacked(again.batch(7)) == BatchText(1001, REQUEST, b"#!/bin/sh\n\xff")
    assert [(job, uid) for job, uid, _ in again.batches()] == [(7, 1001)]


def test_job_that_has_ended_waits_no_more_and_is_known(path: str) -> None:
    _, jobs = opened(path)
    job = a_job(7)
    jobs.put(job)
    jobs.commit()
    job.job_state = "CANCELLED"
    jobs.put(job)
    jobs.drop_batch(7)
    jobs.commit()
    assert not list(jobs.waiting())
    found = jobs.find(7)
    assert found is not None
    assert found.record.job_state == "CANCELLED"
    assert jobs.batch(7) is None
    assert jobs.find(8) is None


def test_runs_of_a_job_are_kept_apart_and_the_latest_counts(path: str) -> None:
    store, jobs = opened(path)
    job = a_job(7, job_state="RUNNING", start_time=5.0)
    jobs.put(job)
    jobs.commit()
    jobs.put_run(job)
    job.restart_cnt, job.job_state = 1, "PENDING"
    jobs.put(job)
    jobs.commit()
    (found,) = jobs.waiting()
    assert (found.record.restart_cnt, found.record.job_state) == (1, "PENDING")
    runs = list(store.query("SELECT restart, state FROM job ORDER BY restart"))
    assert runs == [(0, REQUEUED), (1, "PENDING")]


def test_nodes_that_share_a_file_have_queues_of_their_own(path: str) -> None:
    _, one = opened(path)
    _, two = opened(path, "/run/two")
    one.put(a_job(1))
    one.put_node("drain", "why", 0, 1.0)
    one.put_usage([(1001, 5.0, 2.0)])
    one.put_week([("ann", 7.0, 3.0, 2.0)])
    one.put_reservation("r", {"name": "r"})
    one.commit()
    two.put(a_job(2))
    two.commit()
    assert [kept.record.job_id for kept in two.waiting()] == [2]
    assert two.node() is None
    assert (two.usage(), two.week()) == ([], [])
    assert two.reservations() == []
    assert one.node() == ("drain", "why", 0, 1.0)
    assert one.usage() == [(1001, 5.0, 2.0)]
    assert one.week() == [("ann", 7.0, 3.0, 2.0)]
    assert one.reservations() == [{"name": "r"}]


def test_queue_of_a_node_that_is_gone_goes_with_it(path: str, tmp_path: Path) -> None:
    store, one = opened(path, str(tmp_path))
    _, gone = opened(path, str(tmp_path / "gone"))
    one.put(a_job(1))
    one.commit()
    gone.put(a_job(2))
    gone.put(a_job(4, job_state="COMPLETED", end_time=5.0))
    gone.put_batch(2, packed(BatchText(1001, REQUEST, b"#!")))
    gone.commit()
    one.drop_dead_nodes()
    one.commit()
    assert [number for (number,) in store.query("SELECT id FROM job ORDER BY id")] == [1, 4]
    assert one.batch(2) is None


def test_number_of_a_known_job_is_not_given_out_again(path: str) -> None:
    store, jobs = opened(path)
    jobs.put(a_job(1))
    jobs.commit()
    list(store.query("INSERT INTO counter VALUES ('job', ?)", (0xFFFFFF00,)))
    assert store.next_job() == 2


def test_full_disk_loses_nothing_that_was_put_and_writes_it_later(path: str) -> None:
    store, jobs = opened(path)
    fill_the_disk(store)
    jobs.put(a_job(7))
    jobs.put_batch(7, packed(BatchText(1001, REQUEST, b"#!" + os.urandom(9000))))
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="full"):
            jobs.commit()
        assert jobs.is_behind
        assert not list(jobs.waiting())
    list(store.query("PRAGMA max_page_count=1000000"))
    jobs.commit()
    assert [kept.record.job_id for kept in jobs.waiting()] == [7]


def test_refused_job_was_never_put(path: str) -> None:
    store, jobs = opened(path)
    jobs.put(a_job(6))
    fill_the_disk(store)
    jobs.put(a_job(7))
    jobs.put_batch(7, packed(BatchText(1001, REQUEST, b"#!" + os.urandom(9000))))
    with pytest.raises(sqlite3.OperationalError, match="full"):
        jobs.commit()
    jobs.forget(7)
    list(store.query("PRAGMA max_page_count=1000000"))
    jobs.commit()
    assert [kept.record.job_id for kept in jobs.waiting()] == [6]
    assert jobs.batch(7) is None


def test_run_that_did_not_begin_is_no_run(path: str) -> None:
    store, jobs = opened(path)
    job = a_job(7, job_state="RUNNING")
    jobs.put(job)
    jobs.commit()
    job.job_state, job.restart_cnt = "PENDING", 1
    jobs.put(job)
    jobs.commit()
    assert list(store.query("SELECT restart, state FROM job")) == [(1, "PENDING")]


def test_end_of_a_step_is_written_with_the_end_of_its_job_or_not_at_all(path: str) -> None:
    store, jobs = opened(path)
    job = a_job(7)
    jobs.put(job)
    jobs.commit()
    job.job_state = "COMPLETED"
    jobs.put(job)
    store.add([Ended({"job": 7, "step": 0, "uid": 1001, "ended": 1.0}, b"")])
    assert not jobs.is_behind
    assert not list(opened(path)[1].waiting())
    other = a_job(9, job_state="COMPLETED", comment="x" * 9000)
    fill_the_disk(store)
    jobs.put(other)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.add([Ended({"job": 9, "step": 0, "uid": 1001, "ended": 1.0}, b"")])
    assert store.record(9, 0) is None
    assert jobs.find(9) is None
    assert jobs.is_behind


def test_job_holds_what_was_written(path: str) -> None:
    _, jobs = opened(path)
    job = a_job(7)
    job.job_resrcs = object()  # type: ignore[assignment]  # `resources` knows
    jobs.put(job)
    jobs.commit()
    (found,) = jobs.waiting()
    assert found.resources == {"here": {"mask": "3"}}
    assert found.boot == "boot"


def test_daemon_does_not_start_with_a_file_that_is_no_history(path: str) -> None:
    Path(path).parent.mkdir()
    Path(path).write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store(path, 10)


def test_task_of_a_long_array_is_found_without_a_look_at_the_others(path: str) -> None:
    store, jobs = opened(path)
    for index in range(500):
        jobs.put(a_job(1000 + index, array_job_id=1000, array_task_id=index, job_state="COMPLETED", end_time=5.0))
    jobs.put(a_job(7, array_task_id=3, job_state="COMPLETED", end_time=5.0))
    jobs.commit()
    plans: list[str] = []
    query = store.query

    def explained(statement: str, values: Any = ()) -> Any:
        plans.extend(row[3] for row in query(f"EXPLAIN QUERY PLAN {statement}", values))
        return query(statement, values)

    store.query = explained  # type: ignore[method-assign]
    assert jobs.outcome(1000, 499) == jobs.task(1000, 499).record.job_state  # type: ignore[union-attr]
    found = jobs.task(1000, 499)
    assert found is not None
    assert (found.record.job_id, found.record.array_task_id) == (1499, 499)
    assert any("job_by_task (array=? AND <expr>=?)" in plan for plan in plans), plans
    assert jobs.task(1000, 500) is None
    assert jobs.task(0, 3) is None


def test_odd_bytes_of_an_admin_keep_nothing_from_the_disk(path: str) -> None:
    _, jobs = opened(path)
    jobs.put(a_job(7))
    jobs.put_node("drain", f"caf{ODD}", 0, 1.0)
    jobs.put_reservation(f"r{ODD}", {"name": f"r{ODD}"})
    jobs.commit()
    _, again = opened(path)
    assert [kept.record.job_id for kept in again.waiting()] == [7]
    assert again.node() == ("drain", "caf\\udcff", 0, 1.0)
    assert again.reservations() == [{"name": f"r{ODD}"}]
    again.drop_reservation(f"r{ODD}")
    again.commit()
    assert not again.reservations()


def test_jobs_that_take_a_while_to_write_are_told_until_they_are_written(path: str) -> None:
    _, jobs = opened(path)
    for number in range(1, 4):
        assert not jobs.has_much
        jobs.put(a_job(number), 100_000)
        jobs.put(a_job(number), 100_000)  # changed once more: written once
    assert jobs.has_much
    jobs.commit()
    assert not jobs.has_much


def test_a_queue_is_read_job_by_job_as_it_is_by_then(path: str) -> None:
    """Its rows together may be more than there is memory."""
    _, jobs = opened(path)
    for number in range(1, 5):
        jobs.put(a_job(number))
    jobs.commit()
    rows = opened(path)[1].waiting()
    read = [next(rows).record.job_id]
    jobs.put(a_job(2, job_state="COMPLETED", end_time=5.0))
    jobs.commit()
    read += [kept.record.job_id for kept in rows]
    assert read == [1, 3, 4]
