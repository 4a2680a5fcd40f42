"""The history: what is noted of running steps, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodectl.daemon.store import Ended, Store


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
    again.bury("one", ())
    assert again.record(job, 0) is None
    again.bury("two", ())
    found = again.record(job, 0)
    assert found is not None
    assert (found["state"], found["reason"]) == ("NODE_FAIL", "the machine was reset")
    assert float(str(found["ended"])) > 1e9
    assert again.next_job() == job + 1
    again.bury("three", ())
    assert len(again.latest(None, 10)[0]) == 1


def test_what_a_step_says_of_its_end_replaces_the_note(path: str) -> None:
    store = Store(path, 10)
    store.note("one", [record(1), record(2)])
    store.add([Ended(record(1, "COMPLETED"), b"trace")])
    store.bury("two", ())
    states = [(store.record(job, 0) or {})["state"] for job in (1, 2)]
    assert states == ["COMPLETED", "NODE_FAIL"]


def test_noted_step_that_is_known_in_other_ways_is_left_alone(path: str) -> None:
    store = Store(path, 10)
    store.note("one", [record(1)])
    store.note("one", [record(1)])
    store.bury("two", {(1, 0)})
    assert store.record(1, 0) is None
