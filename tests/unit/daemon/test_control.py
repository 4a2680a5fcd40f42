"""What is done to thousands of jobs in one call, some at a time; which jobs the lists of a call mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.model.wire.dispatch import Refused
from nodectl.scheduler import job_array
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.admission.slices import Slices, Work
from nodectl.service.daemon.methods.control import JobControl
from nodectl.service.daemon.methods.show_queue import Matching

JOBS = 1000
UID = 1000


def job(number: int, state: str = "PENDING", **more: Any) -> JobRecord:
    return JobRecord(number, UID, UID, "ann", f"job{number}", "all", job_state=state, **more)


class Queue:
    """As much of a controller as the calls need; `turn` counts how often others could be served."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.turns = 0
        self.written_soon = False
        self.at: dict[int, Callable[[], None]] = {}  # what happens meanwhile, by turn
        self.jobs = {number: job(number) for number in range(1, JOBS + 1)}
        self.kicks = 0
        self.cancel = lambda one, *_: self.done.append(one.job_id)
        self.scheduler = SimpleNamespace(
            hold=lambda one, *_: self.done.append(one.job_id),
            release=lambda one, *_, **__: self.done.append(one.job_id),
            waiting_tasks=lambda one: job_array.tasks_of(one.array_tasks),
        )
        self.rounds = SimpleNamespace(kick=self.kick)
        self.table = SimpleNamespace(
            jobs=self.jobs, commits=self, store=self, changed=lambda _: None, check_bytes=lambda _: None
        )
        self._written = 0

    @property
    def has_much(self) -> bool:
        return len(self.done) - self._written >= 100

    def kick(self) -> None:
        self.kicks += 1

    def soon(self) -> None:
        self.written_soon = True

    async def durable(self) -> None:
        self.turns += 1
        self._written = len(self.done)
        self.at.pop(self.turns, lambda: None)()
        await asyncio.sleep(0)


def called(queue: Queue, method: str, tasks: str = "", **given: object) -> None:
    slices = Slices()

    async def several(*_: object) -> list[tuple[JobRecord, str]]:
        return [(one, tasks) for one in queue.jobs.values()]

    async def learn(_: object, _text: str) -> None:
        """Of no dependency."""

    calls: Any = SimpleNamespace(
        controller=queue,
        learn=learn,
        several=several,
        work=lambda: Work(slices),
        permissions=SimpleNamespace(may_see=lambda *_: True),
        is_admin=lambda _: False,
    )
    call: Any = SimpleNamespace(parameters=given, peer=SimpleNamespace(uid=UID))
    asyncio.run(getattr(JobControl(calls), method)(call))


@pytest.mark.parametrize("method", ["cancel", "hold", "release"])
def test_thousands_of_jobs_of_one_call_do_not_keep_others_waiting(method: str) -> None:
    queue = Queue()
    called(queue, method, jobs=["all"])
    assert queue.done == list(range(1, JOBS + 1))
    assert queue.turns > 5


@pytest.mark.parametrize("method", ["hold", "release"])
def test_job_that_starts_or_ends_meanwhile_is_left_out(method: str) -> None:
    queue = Queue()

    def meanwhile() -> None:
        queue.jobs[JOBS].job_state = "RUNNING"
        del queue.jobs[JOBS - 1]

    queue.at[1] = meanwhile
    called(queue, method, jobs=["all"])
    assert queue.done == list(range(1, JOBS - 1))


@pytest.mark.parametrize("method", ["hold", "release", "update"])
def test_what_was_done_before_a_refusal_is_written_and_looked_at(method: str) -> None:
    queue = Queue()
    queue.jobs = {7: job(7, array_job_id=7, array_tasks="0-9")}
    queue.table.jobs = queue.jobs

    def set_apart(array: JobRecord, index: int, _: float) -> JobRecord:
        if index == 1:
            raise NotAdmitted("no job id can be drawn: the disk is full")
        array.array_tasks = "1-9"
        queue.jobs[8] = job(8, array_job_id=7, array_task_id=index)
        return queue.jobs[8]

    queue.scheduler.set_apart = set_apart
    with pytest.raises(Refused, match="disk is full"):
        called(queue, method, tasks="0-1", jobs=["7_[0-1]"], job="7_[0-1]")
    assert (queue.kicks, queue.written_soon) == (1, True)


def test_task_that_starts_while_its_array_is_cancelled_is_cancelled_too() -> None:
    queue = Queue()
    queue.jobs[JOBS] = job(JOBS, array_job_id=JOBS, array_tasks="0-9")
    queue.at[1] = lambda: queue.jobs.update({5000: job(5000, "RUNNING", array_job_id=JOBS, array_task_id=0)})
    called(queue, "cancel", users=["ann"])
    assert queue.done[-2:] == [JOBS, 5000]


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({}, True),
        ({"users": ["ann"]}, True),
        ({"users": [str(UID)]}, True),
        ({"users": ["bob"]}, False),
        ({"states": ["running", "pending"]}, True),
        ({"states": ["running"]}, False),
        ({"names": ["job7"], "users": ["ann"]}, True),
        ({"names": ["job"]}, False),
    ],
)
def test_lists_of_a_call_say_which_jobs_are_meant(given: dict[str, object], means: bool) -> None:
    assert Matching(given)(job(7)) is means
