"""Steps of a job that are stopped together: all of them stand still, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.daemon.jobs.resources import Resources
from nodectl.daemon.jobs.suspension import Suspension
from nodectl.daemon.jobs.watcher import Watcher
from nodectl.wire.dispatch import Refused


class Step:
    """A step that does as it is told, unless `broken`. `state`: what its stepd says."""

    def __init__(self, number: int, state: str = "RUNNING", *, broken: bool = False) -> None:
        self.step = SimpleNamespace(job_id=7, step_id=number, cgroup="", suspend_grace_time=0.05)
        self.suspended = self.in_prolog = False
        self.broken = broken
        self.told = asyncio.Event()
        self.state = state
        self.status_task = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def order(self, method: str, _: Mapping[str, object]) -> None:
        await asyncio.sleep(0)  # the answer comes later
        if self.broken:
            raise OSError("broken")
        if (method == "Suspend") == self.suspended:
            raise Refused("WrongState", method)
        self.told.set()

    async def ask(self, method: str, _: Mapping[str, object]) -> Mapping[str, object]:
        assert method == "Status"
        return {"parameters": {"step": {"state": self.state}}}


class Queue(Watcher):
    def __init__(self, why: str) -> None:
        self.suspended: list[int] = []
        self.why = why

    def job_suspended(self, job: int) -> None:
        self.suspended.append(job)

    def job_resuming(self, job: int) -> str:
        del job
        return self.why


def suspension_of(steps: dict[int, Step], why: str = "") -> tuple[Suspension, Queue]:
    queue = Queue(why)
    live: Any = steps
    further: Any = SimpleNamespace(running=lambda _: list(steps.values()), wake=lambda _: None)
    resources = Resources(SimpleNamespace(), SimpleNamespace(has=lambda _: False), live)  # type: ignore[arg-type]
    return Suspension("", further, resources, SimpleNamespace(begin=lambda work: work.close()), lambda: queue), queue  # type: ignore[arg-type]


def test_all_steps_of_a_job_stand_still() -> None:
    async def play() -> None:
        steps = {0: Step(0), 1: Step(1)}
        suspension, queue = suspension_of(steps)
        await suspension.suspend_job(7)
        assert [one.suspended for one in steps.values()] == [True, True]
        assert queue.suspended == [7]

    asyncio.run(play())


@pytest.mark.parametrize("what", ["resumed", "new", "broken"])
def test_none_stands_still_where_one_runs_all_the_same(what: str) -> None:
    """The queue was told nothing, and waited for ever for the room that the job was to make."""

    async def play() -> None:
        steps = {0: Step(0), 1: Step(1, broken=what == "broken")}
        suspension, queue = suspension_of(steps)
        stopping = asyncio.ensure_future(suspension.suspend_job(7))
        await steps[0].told.wait()
        if what == "resumed":
            await suspension.resume(steps[1])  # type: ignore[arg-type]
        elif what == "new":
            steps[2] = Step(2)
        with pytest.raises(OSError if what == "broken" else Refused):
            await stopping
        assert not any(one.suspended for one in steps.values())
        assert not queue.suspended

    asyncio.run(play())


def test_step_of_a_job_that_makes_room_is_not_resumed_before_it_stands_still() -> None:
    async def play() -> None:
        steps = {0: Step(0)}
        suspension, queue = suspension_of(steps, "it makes room for job 8")
        stopping = asyncio.ensure_future(suspension.suspend_job(7))
        await steps[0].told.wait()
        with pytest.raises(Refused, match="makes room"):
            await suspension.resume(steps[0])  # type: ignore[arg-type]
        await stopping
        assert queue.suspended == [7]

    asyncio.run(play())


def test_job_that_has_just_been_let_go_is_stopped_after_that() -> None:
    """A job went on, and made room for another one at once: nothing of it ran yet, so it was left alone."""

    async def play() -> None:
        steps = {0: Step(0), 1: Step(1)}
        suspension, queue = suspension_of(steps)
        await suspension.suspend_job(7)
        await asyncio.gather(suspension.resume_job(7), suspension.suspend_job(7))
        assert all(one.suspended for one in steps.values())
        assert queue.suspended == [7, 7]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("states", "frozen", "told"),
    [
        (("SUSPENDED", "SUSPENDED"), (), [7]),
        (("SUSPENDED", "SUSPENDED"), (1,), [7]),
        (("SUSPENDED", "SUSPENDED"), (0, 1), [7]),
        (("SUSPENDED", "RUNNING"), (0,), []),
        (("RUNNING", "RUNNING"), (), []),
    ],
)
def test_what_an_earlier_daemon_told_to_stop_stands_still_in_the_end(
    states: tuple[str, str], frozen: tuple[int, ...], told: list[int]
) -> None:
    """Its steps stopped by themselves, and for the queue it ran: it could not be resumed, nor make room."""

    async def play() -> None:
        steps = {number: Step(number, state) for number, state in enumerate(states)}
        for number in frozen:
            steps[number].suspended = True
        suspension, queue = suspension_of(steps)
        suspension._resources.found_suspended()
        await suspension.take_over(7)
        assert [one.suspended for one in steps.values()] == [state == "SUSPENDED" for state in states]
        assert list(dict.fromkeys(queue.suspended)) == told

    asyncio.run(play())
