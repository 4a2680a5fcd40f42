"""The history: what is noted of running steps, and what becomes of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.selection.records import JobRecord
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.pruning import fair
from nodectl.service.daemon.history.store import Ended, Store


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state/history.db")


def record(job: int, state: str = "NODE_FAIL") -> dict[str, Any]:
    return {"job": job, "step": 0, "uid": 1001, "ended": 0.0, "state": state, "reason": "the machine was reset"}


def test_noted_step_is_recorded_by_the_first_node_after_a_boot(path: str) -> None:
    store = Store(path, 10)
    job = store.next_job()
    store.note("one", [record(job)])
    again = Store(path, 10)  # as nothing closed the first one
    again.record_lost("one", ())
    assert again.record(job, 0) is None
    again.record_lost("two", ())
    found = again.record(job, 0)
    assert found is not None
    assert (found["state"], found["reason"]) == ("NODE_FAIL", "the machine was reset")
    assert float(str(found["ended"])) > 1e9
    assert again.next_job() == job + 1
    again.record_lost("three", ())
    assert len(again.latest(None, 10)[0]) == 1


def test_what_a_step_says_of_its_end_replaces_the_note(path: str) -> None:
    store = Store(path, 10)
    store.note("one", [record(1), record(2)])
    store.add([Ended(record(1, "COMPLETED"), b"trace")])
    store.record_lost("two", ())
    states = [(store.record(job, 0) or {})["state"] for job in (1, 2)]
    assert states == ["COMPLETED", "NODE_FAIL"]


def test_writing_the_record_of_many_tasks_takes_little_more_memory_than_its_text(path: str) -> None:
    """What an encoder holds for all tasks at once would stay with an idle daemon."""
    tasks = [
        {"task": number, "status": None, "used": {"user": number / 8, "words": ["\xe9", 1]}} for number in range(517)
    ]
    large = {**record(1), "tasks": tasks, "reason": '"tasks":[]'}
    store = Store(path, 10)
    tracemalloc.start()
    try:
        store.add([Ended(large, b"")])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert store.record(1, 0) == large
    assert peak < 5 * len(json.dumps(large))


def test_noted_step_that_is_known_in_other_ways_is_left_alone(path: str) -> None:
    store = Store(path, 10)
    store.note("one", [record(1)])
    store.note("one", [record(1)])
    store.record_lost("two", {(1, 0)})
    assert store.record(1, 0) is None


def ended(store: Store, uid: int, count: int, *, at: float = 0.0, size: int = 10) -> list[int]:
    """Adds so many steps of a user's, one by one, each of which has ended a second later; their jobs."""
    jobs = [store.next_job() for _ in range(count)]
    for late, job in enumerate(jobs):
        store.add([Ended({**record(job, "COMPLETED"), "uid": uid, "ended": at + late, "reason": "x" * size}, b"")])
    return jobs


def jobs_of(store: Store, uid: int) -> list[int]:
    jobs: list[int] = []
    more = True
    while more:
        found, more = store.latest(uid, 10_000, len(jobs))
        jobs += [int(str(one["job"])) for one in found]
    return jobs


def test_flood_of_one_users_steps_takes_nothing_from_others(path: str) -> None:
    store = Store(path, 100)
    roots, few = ended(store, 0, 1), ended(store, 1, 20, at=100)
    flood = ended(store, 2, 600, at=1000)
    assert jobs_of(store, 0) == roots
    assert jobs_of(store, 1) == few[::-1]
    left = jobs_of(store, 2)
    assert 79 <= len(left) <= 79 + 256
    assert left == flood[: -len(left) - 1 : -1]  # its own oldest have gone


def test_clock_that_is_set_back_does_not_make_the_new_be_forgotten(path: str) -> None:
    store = Store(path, 10)
    ended(store, 1, 40, at=2e9)
    later = ended(store, 1, 10, at=1e9)
    assert jobs_of(store, 1)[:10] == later[::-1]


def test_history_is_bound_in_bytes_by_the_same_shares(path: str) -> None:
    store = Store(path, 10_000, 1 << 20)
    few = ended(store, 1, 5)
    ended(store, 2, 50, size=100_000)
    assert jobs_of(store, 1) == few[::-1]
    assert 8 <= len(jobs_of(store, 2)) <= 11


def test_what_is_too_much_is_forgotten_a_little_at_a_time(path: str) -> None:
    """However much is kept: the event loop waits for each transaction."""
    most, slack = 32 << 20, 2 << 20
    store = Store(path, 10_000, most)
    ended(store, 1, 350, size=100_000)
    kept = [kept_bytes(store)]
    while len(kept) < 40:
        ended(store, 1, 1, size=100_000)
        kept.append(kept_bytes(store))
    assert max(kept) <= most + slack + 200_000
    assert max(before - after for before, after in itertools.pairwise(kept)) <= 1_200_000
    assert any(after < before for before, after in itertools.pairwise(kept))


def kept_bytes(store: Store) -> int:
    [(size,)] = store.query("SELECT SUM(bytes) FROM kept")
    return int(size)


def test_history_of_commands_that_add_one_step_each_is_bound_too(path: str) -> None:
    for _ in range(40):
        store = Store(path, 10)
        ended(store, 0, 1)
        store.close()
    assert len(jobs_of(Store(path, 10), 0)) == 10


def test_each_ended_step_is_told_once(path: str) -> None:
    told: list[object] = []
    store = Store(path, 10, tell=lambda record: told.append(record["job"]))
    jobs = ended(store, 1, 3)
    store.note("one", [record(jobs[-1] + 1)])
    store.record_lost("two", ())
    assert told == [*jobs, jobs[-1] + 1]


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 200))
def test_fair_share_leaves_no_more_than_there_is_room_for_and_wastes_none(sizes: list[int], most: int) -> None:
    share = fair(sizes, most)
    left = [min(size, share) for size in sizes]
    assert sum(left) <= most
    if sum(sizes) > most:
        assert sum(min(size, share + 1) for size in sizes) > most
    else:
        assert left == sizes


def test_numbers_that_come_again_are_no_known_jobs(path: str) -> None:
    store = Store(path, 10)
    last = 0xFFFFFF00
    ended(store, 1, 2)
    store.note("one", [record(3)])
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE counter SET value = ?", (last - 1,))
        db.commit()
    store = Store(path, 10)
    assert [store.next_job() for _ in range(3)] == [last, 4, 5]


def test_own_jobs_have_numbers_that_are_not_slurms(path: str) -> None:
    """Also those of a history that is older than the key."""
    store = Store(path, 10)
    assert [store.next_job() for _ in range(3)] == [1, 2, 3]
    store.close()
    store = Store(path, 10, least_job=1000)
    assert [store.next_job() for _ in range(20)] == list(range(1000, 1020))
    store.add([Ended(record(1020), b"")])  # Slurm's, of a federation
    store.close()
    store = Store(path, 10, least_job=1000)
    assert store.next_job() == 1021


def test_numbers_begin_again_beyond_slurms(path: str) -> None:
    last = 0xFFFFFF00
    store = Store(path, 10, least_job=1000)
    store.pass_over(last - 1)
    assert [store.next_job() for _ in range(3)] == [last, 1000, 1001]


def test_a_job_of_elsewhere_is_one_users_and_has_only_parts(path: str) -> None:
    store = Store(path, 10)
    assert store.is_elsewheres(7, 1)
    part = {**record(7), "uid": 1, "part": {"nodes": "n1"}}
    store.add([Ended(part, b"")])
    assert store.is_elsewheres(7, 1)
    assert not store.is_elsewheres(7, 2)
    store.note("one", [{**record(7), "step": 1, "uid": 1}])
    assert not store.is_elsewheres(7, 1)


def test_numbers_drawn_together_are_not_lost_at_an_orderly_end_and_never_given_twice(path: str) -> None:
    store = Store(path, 10)
    given = [store.next_job() for _ in range(5)]
    store.give_back(given.pop())
    store.close()
    killed = Store(path, 10)
    given += [killed.next_job() for _ in range(40)]
    assert given == list(range(1, 45))
    later = Store(path, 10)  # as nothing closed the one before
    assert later.next_job() > given[-1]


def test_what_is_older_than_its_days_is_forgotten_whoevers_it_is(path: str) -> None:
    now = time.time()
    store = Store(path, 10_000, days=2)
    old, new = ended(store, 1, 700, at=now - 3 * 86_400), ended(store, 2, 5, at=now - 86_400)
    while store.forget_old():
        """It goes a little at a time."""
    assert jobs_of(store, 1) == []
    assert jobs_of(store, 2) == new[::-1]
    assert dict(store.query("SELECT uid, steps FROM kept")) == {1: 0, 2: 5}
    assert old


def test_days_without_end_forget_nothing(path: str) -> None:
    store = Store(path, 10_000)
    jobs = ended(store, 1, 5, at=1.0)
    assert not store.forget_old()
    assert jobs_of(store, 1) == jobs[::-1]


def put(table: JobStore, numbers: Iterable[int], uid: int, end: float, size: int = 10) -> None:
    for number in numbers:
        job = JobRecord(number, user_id=uid, comment="x" * size)
        if end:
            job.job_state, job.end_time = "CANCELLED", end
        table.put(job)
    table.commit()


def known(store: Store, uid: int) -> list[int]:
    return [job for (job,) in store.query("SELECT id FROM job WHERE uid = ? ORDER BY id", (uid,))]


def test_flood_of_one_users_jobs_takes_nothing_from_others_and_none_that_waits(path: str) -> None:
    store = Store(path, 100)
    table = JobStore(store, "/run/one", "boot", lambda job: {})
    put(table, range(1, 21), 1, 5.0)
    put(table, range(21, 51), 2, 0)
    for first in range(101, 701, 50):
        put(table, range(first, first + 50), 2, 6.0)
    assert known(store, 1) == list(range(1, 21))
    left = known(store, 2)
    assert left[:30] == list(range(21, 51))
    assert 79 <= len(left) - 30 <= 80 + 56
    assert left[-1] == 700


def test_jobs_are_bound_in_bytes_and_in_days(path: str) -> None:
    now = time.time()
    store = Store(path, 10_000, 1 << 20, days=2)
    table = JobStore(store, "/run/one", "boot", lambda job: {})
    put(table, range(1, 31), 1, now, size=100_000)
    assert 8 <= len(known(store, 1)) <= 11
    put(table, range(31, 41), 2, now - 3 * 86_400)
    put(table, range(41, 51), 2, 0)
    assert not store.forget_old()
    assert known(store, 2) == list(range(41, 51))


def test_jobs_that_are_written_again_are_counted_once(path: str) -> None:
    store = Store(path, 10_000)
    table = JobStore(store, "/run/one", "boot", lambda job: {})
    put(table, range(1, 4), 1, 0)
    for _ in range(3):
        put(table, range(1, 4), 1, 5.0)
    put(table, range(4, 6), 1, 5.0)
    [(jobs, size)] = store.query("SELECT jobs, bytes FROM kept_jobs WHERE uid = 1")
    assert jobs == 5
    assert [(size,)] == list(store.query("SELECT SUM(LENGTH(record) + LENGTH(resources)) FROM job"))
