"""Batch jobs of which no run began: they wait again, also where somebody wanted that meanwhile, or a daemon died."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.model.states import PENDING, RUNNING
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.records import BATCH, JobDetails, JobRecord
from nodectl.service.daemon.controller import restore
from nodectl.service.daemon.controller.controller import Controller
from nodectl.service.daemon.controller.table import JobTable
from nodectl.service.daemon.history.job_store import JobStore, Kept
from nodectl.service.daemon.history.store import Store
from unit.scheduler.bench import NOW, PLAIN, selection_of


def store_of(tmp_path: Path) -> JobStore:
    return JobStore(Store(str(tmp_path / "state/history.db"), 100), "/run/one", "boot", lambda _: {})


def queue_of(tmp_path: Path) -> Controller:
    """A controller with a scheduler and a store, and without anything that runs."""
    config: Any = SimpleNamespace(interactive_lease=60.0)
    notices = SimpleNamespace(forget=lambda _: None)
    parts: Any = SimpleNamespace(registry=None, further_steps=None, starts=SimpleNamespace(), notices=notices)
    queue = Controller(config, JobTable(store_of(tmp_path), 1 << 30), parts)
    queue.scheduler = Scheduler(selection_of(), PLAIN, new_id=lambda: 99, outcome=lambda *_: None)
    queue.table.jobs = queue.scheduler.jobs
    no_round: Any = SimpleNamespace(kick=lambda: None)
    queue.rounds = no_round
    return queue


@pytest.mark.parametrize("hold", ["", "user"])
def test_job_that_is_requeued_while_it_is_being_started_waits_again(tmp_path: Path, hold: str) -> None:
    async def play() -> JobRecord:
        queue = queue_of(tmp_path)
        job = JobRecord(7, 1000, 1000, user_name="u", held_by=BATCH, details=JobDetails(num_tasks=1, min_cpus=1))
        queue.scheduler.submit(job, NOW)
        assert [one for one in queue.scheduler.schedule(NOW) if one is not None]
        assert job.job_state == RUNNING
        queue._starting.add(7)
        queue.requeue(job, "preempted by job 8", hold)
        queue._starting.discard(7)
        assert queue.is_doomed(7)
        assert queue._has_not_begun(job)
        assert queue.scheduler.jobs[7] is job
        queue.table.commits.now()
        return job

    job = asyncio.run(play())
    assert (job.job_state, job.restart_cnt, job.to_requeue, job.held) == (PENDING, 0, None, hold)
    (kept,) = store_of(tmp_path).waiting()
    assert (kept.record.job_id, kept.record.job_state) == (7, PENDING)


def what_became(job: JobRecord, record: dict[str, Any] | None, store: JobStore) -> restore._Found:
    batch = SimpleNamespace(record=lambda *_: record)
    controller: Any = SimpleNamespace(
        parts=SimpleNamespace(registry=SimpleNamespace(batch=batch)), table=SimpleNamespace(store=store)
    )
    found = restore._Found([], [])
    restore._is_gone(controller, Kept(job, {}, "boot"), selection_of().nodes, "boot", found)
    return found


@pytest.mark.parametrize("state", ["CANCELLED", "NODE_FAIL"])
@pytest.mark.parametrize("requeue", [True, False])
def test_record_of_an_earlier_run_is_not_the_end_of_one_that_never_began(
    tmp_path: Path, state: str, requeue: bool
) -> None:
    job = JobRecord(7, 1000, held_by=BATCH, job_state=RUNNING, restart_cnt=1, details=JobDetails(requeue=requeue))
    found = what_became(job, {"state": state}, store_of(tmp_path))
    assert found.jobs == [job]
    assert not found.ended
    assert (job.job_state, job.restart_cnt, job.state_desc) == (PENDING, 1, "")


def test_wish_to_requeue_a_run_that_never_began_is_fulfilled_by_waiting(tmp_path: Path) -> None:
    job = JobRecord(7, 1000, held_by=BATCH, job_state=RUNNING, to_requeue="user")
    assert what_became(job, None, store_of(tmp_path)).jobs == [job]
    assert (job.job_state, job.held, job.to_requeue) == (PENDING, "user", None)
