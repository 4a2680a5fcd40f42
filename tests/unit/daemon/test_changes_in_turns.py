"""A call that changes many jobs has them written a few at a time: no transaction is as large as the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.model.wire.dispatch import Refused
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.admission.slices import Work
from nodectl.service.daemon.controller.controller import Controller
from nodectl.service.daemon.history.batch_text import PackedText
from nodectl.service.daemon.methods import control as control_module
from nodectl.service.daemon.methods.control import JobControl
from nodectl.service.daemon.methods.rewrite import Rewritten
from unit.daemon.test_slices import Site

_A_FEW = 8
_TASKS = 100


class Disk:
    """Counts the jobs of each transaction."""

    def __init__(self) -> None:
        self.jobs: set[int] = set()
        self.largest = 0

    def put(self, job: JobRecord, size: int = 0) -> None:
        assert size > 0
        self.jobs.add(job.job_id)

    @property
    def has_much(self) -> bool:
        return len(self.jobs) >= _A_FEW

    @property
    def is_behind(self) -> bool:
        return bool(self.jobs)

    def commit(self) -> None:
        self.largest = max(self.largest, len(self.jobs))
        self.jobs.clear()

    def is_to_write(self, job: int) -> bool:
        return job in self.jobs

    def drop_batch(self, job: int) -> None:
        """No job here has a text."""

    def batches(self) -> list[tuple[int, int, int]]:
        return []


def _control(site: Site) -> JobControl:
    """The methods, with a clock that stands still: only what is to be written makes them wait."""
    nothing: Any = SimpleNamespace(kick=lambda: None, end=lambda _: None)
    config: Any = SimpleNamespace(interactive_lease=60.0)
    parts: Any = SimpleNamespace(registry=None, further_steps=None, starts=nothing)
    controller = Controller(config, site.table, parts)
    controller.scheduler, controller.selection = site.bench.scheduler, site.bench.selection
    controller.rounds = controller.leases = nothing
    site.calls.controller = controller
    site.calls.is_admin = lambda _: False
    site.calls.work = lambda: Work(site.slices, clock=lambda: 0.0)
    return JobControl(site.calls)


@pytest.mark.parametrize(
    "call",
    [
        lambda control, array: control.update(_call(job=array, comment="x")),
        lambda control, array: control.hold(_call(jobs=[array])),
        lambda control, array: control.release(_call(jobs=[array])),
        lambda control, array: control.cancel(_call(jobs=[array])),
        lambda control, array: control.update(_call(job=f"{array}_[0-{_TASKS - 1}]", comment="x")),
    ],
    ids=["update", "hold", "release", "cancel", "update tasks that wait in one record"],
)
def test_no_transaction_is_as_large_as_the_call(call: Callable[[JobControl, str], Coroutine[Any, Any, object]]) -> None:
    disk = Disk()
    site = Site(disk)
    array = site.bench.submit(array_tasks=f"0-{2 * _TASKS}", held="user")
    for index in range(_TASKS, 2 * _TASKS):
        site.bench.scheduler.set_apart(array, index, site.bench.at)
    site.restored()
    asyncio.run(call(_control(site), str(array.job_id)))
    assert 0 < disk.largest <= _A_FEW + 1  # a task and its array are written together


@pytest.mark.parametrize("begins", [True, False])
def test_a_task_that_begins_while_the_text_of_its_array_is_read_keeps_the_text(
    monkeypatch: pytest.MonkeyPatch, *, begins: bool
) -> None:
    """It has CPUs and devices for the old one. The text and the array's record are as they were."""
    old, new = PackedText(1000, 10, b"old", b""), PackedText(1000, 10, b"new", b"")
    texts: list[PackedText] = []
    disk: Any = Disk()
    site = Site(disk)
    array = site.bench.submit(array_tasks="0-3")
    disk.batches, disk.batch = lambda: [(array.job_id, 1000, 10)], lambda _: old
    disk.put_batch = lambda _, text: texts.append(text)
    site.restored()
    control = _control(site)

    async def rewritten(*_: object) -> Rewritten:
        if begins:
            task = site.bench.scheduler.set_apart(array, 0, site.bench.at)
            for job in (task, array):
                site.table.changed(job)
        return Rewritten(array.details, new, old)

    monkeypatch.setattr(control_module, "rewritten", rewritten)
    change = control.update(_call(job=str(array.job_id), script="#!/bin/sh"))
    if begins:
        with pytest.raises(Refused, match=f"{array.job_id}_0 is a task of its own"):
            asyncio.run(change)
    else:
        asyncio.run(change)
    assert texts == ([] if begins else [new])


def _call(**parameters: object) -> Any:
    return SimpleNamespace(parameters=parameters, peer=SimpleNamespace(uid=1000))
