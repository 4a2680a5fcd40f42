"""Pages of the history for accounting: everything once, in order, whatever happens between two of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.selection.records import JobRecord
from nodectl.service.daemon.history import pages
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.pages import BadPosition, RecordPage, RecordSelection
from nodectl.service.daemon.history.store import Ended, Store

ALICE, BOB = 1001, 1002
Ask = Callable[[Store, RecordSelection, str], RecordPage]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(str(tmp_path / "state/history.db"), 100_000)
    yield opened
    opened.close()


def add(store: Store, count: int, *, size: int = 10, steps: int = 1, at: float = 1000.0) -> None:
    """Jobs of two users in turns; each step has ended half a second after the one before."""
    first = 1 + next(iter(store.query("SELECT COALESCE(MAX(job), 0) FROM step")))[0]
    store.add(
        [
            Ended(
                {
                    "job": job,
                    "step": step,
                    "uid": (ALICE, BOB)[job % 2],
                    "ended": at + (job * steps + step) / 2,
                    "name": "x" * size,
                },
                b"",
            )
            for job in range(first, first + count)
            for step in range(steps)
        ]
    )


def walk(
    ask: Ask, store: Store, wanted: RecordSelection, between: Callable[[], object] = lambda: None
) -> list[dict[str, Any]]:
    found, position, turns = [], "", 0
    while True:
        page = ask(store, wanted, position)
        found += [json.loads(row[0]) for row in page.rows]
        position, turns = page.next, turns + 1
        assert turns < 1000
        if not position:
            return found
        between()


def keys(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(record["job"], record["step"]) for record in records]


def test_all_come_newest_end_first_in_pages_of_bounded_size(store: Store) -> None:
    add(store, 3000, size=300)
    page = pages.steps(store, RecordSelection())
    assert sum(len(row[0]) for row in page.rows) < (1 << 18) + 1000
    assert keys(walk(pages.steps, store, RecordSelection())) == [(job, 0) for job in range(3000, 0, -1)]
    assert keys(walk(pages.steps, store, RecordSelection(uid=BOB))) == [(job, 0) for job in range(2999, 0, -2)]
    assert keys(walk(pages.steps, store, RecordSelection(uid=1))) == []


def test_only_those_that_ended_since_then(store: Store) -> None:
    add(store, 3000)
    assert len(walk(pages.steps, store, RecordSelection(since=1000 + 2500 / 2))) == 501
    assert len(walk(pages.steps, store, RecordSelection(uid=ALICE, since=1000 + 2500 / 2))) == 251


def test_steps_that_end_at_the_same_instant_come_once_each(store: Store) -> None:
    store.add([Ended({"job": job, "step": 0, "uid": ALICE, "ended": 5.0}, b"") for job in range(1, 2501)])
    assert sorted(keys(walk(pages.steps, store, RecordSelection()))) == [(job, 0) for job in range(1, 2501)]


def test_what_ends_between_two_pages_hides_nothing_and_repeats_nothing(store: Store) -> None:
    add(store, 2500)
    found = keys(walk(pages.steps, store, RecordSelection(), lambda: add(store, 50, at=1e6)))
    assert found == [(job, 0) for job in range(2500, 0, -1)]


def test_steps_of_named_jobs_come_job_by_job(store: Store) -> None:
    add(store, 4, steps=1500)
    found = walk(pages.steps, store, RecordSelection(jobs=(3, 99, 2)))
    assert keys(found) == [(job, step) for job in (3, 2) for step in range(1500)]
    assert keys(walk(pages.steps, store, RecordSelection(uid=ALICE, jobs=(3, 2)))) == [
        (2, step) for step in range(1500)
    ]


def test_jobs_that_wait_come_first_and_an_arrays_number_means_its_tasks(store: Store) -> None:
    table = JobStore(store, "/run/one", "boot", lambda job: {})
    for number in range(1, 2101):
        job = JobRecord(number, user_id=(ALICE, BOB)[number % 2], array_job_id=5 if number in (5, 7, 8) else 0)
        if number <= 1000:
            job.job_state, job.end_time = "COMPLETED", 1000.0 + number
        table.put(job)
    table.commit()
    found = [job["job_id"] for job in walk(pages.jobs, store, RecordSelection())]
    assert found == [*range(1001, 2101), *range(1000, 0, -1)]
    assert [job["job_id"] for job in walk(pages.jobs, store, RecordSelection(uid=ALICE, since=1900))] == [
        *range(1002, 2101, 2),
        *range(1000, 899, -2),
    ]
    assert [job["job_id"] for job in walk(pages.jobs, store, RecordSelection(jobs=(5, 9)))] == [5, 7, 8, 9]
    assert [job["job_id"] for job in walk(pages.jobs, store, RecordSelection(uid=BOB, jobs=(5, 8)))] == [5, 7]


@pytest.mark.parametrize("ask", [pages.steps, pages.jobs])
@pytest.mark.parametrize(
    "position", ["x", "ended", "ended 1", "ended nan 1", "ended 1 2 3", "named 0 0 0", "open x", "ended 1e999 1", "\n"]
)
def test_position_that_was_not_handed_out_is_refused(store: Store, ask: Ask, position: str) -> None:
    if position == "ended":
        assert ask(store, RecordSelection(), position).rows == []
        return
    with pytest.raises(BadPosition):
        ask(store, RecordSelection(), position)


def test_named_position_beyond_the_jobs_is_the_end(store: Store) -> None:
    add(store, 3)
    assert pages.steps(store, RecordSelection(jobs=(1,)), "named 5 0 0") == RecordPage([], "")
    assert pages.steps(store, RecordSelection(jobs=(1,)), "named -5 -1 -1").next == ""


@pytest.mark.parametrize("uid", [None, ALICE])
@pytest.mark.parametrize("jobs", [(), (1, 2)])
@pytest.mark.parametrize("ask", [pages.steps, pages.jobs])
def test_no_page_sorts_or_walks_the_history(
    store: Store, ask: Ask, jobs: tuple[int, ...], uid: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, 10)
    asked: list[tuple[str, Any]] = []
    real = store.query

    def query(statement: str, values: Any = ()) -> Iterator[Any]:
        asked.append((statement, values))
        return real(statement, values)

    monkeypatch.setattr(store, "query", query)
    walk(ask, store, RecordSelection(uid, jobs, since=1.0))
    for statement, values in asked:
        plan = [row[3] for row in real(f"EXPLAIN QUERY PLAN {statement}", values)]
        assert all(line.startswith("SEARCH") for line in plan), (statement, plan)


def test_a_page_asks_for_a_bounded_number_of_jobs_of_which_there_is_nothing_to_tell(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, 10)
    asked = 0
    query = store.query

    def counted(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        return query(*given)

    monkeypatch.setattr(store, "query", counted)
    wanted = RecordSelection(jobs=[*range(1_000_000, 1_002_000), 3])
    rows, position, turns = [], "", 0
    while turns == 0 or position:
        before = asked
        page = pages.steps(store, wanted, position)
        assert asked - before < 300
        rows += page.rows
        position, turns = page.next, turns + 1
    assert [json.loads(row[0])["job"] for row in rows] == [3]
    assert turns > 5
