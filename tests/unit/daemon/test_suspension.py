"""Steps of a job that are stopped together: all of them stand still, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.model.launch_order import Hook
from nodectl.model.wire.dispatch import Refused
from nodectl.plugin_host.caller import OK, Outcome
from nodectl.service.daemon.jobs.resources import Resources
from nodectl.service.daemon.jobs.suspension import Suspensions
from nodectl.service.daemon.jobs.watcher import Watcher


class Step:
    """A step that does as it is told, unless `broken`. `state`: what its stepd says."""

    def __init__(self, number: int, state: str = "RUNNING", *, broken: bool = False) -> None:
        self.step = SimpleNamespace(
            job_id=7, step_id=number, cgroup="", suspend_grace_time=0.05, hook_timeout=0.0, uid=0
        )
        self.suspended = self.suspended_by_owner = self.in_prolog = False
        self.broken = broken
        self.told = asyncio.Event()
        self.state = state
        self.status_task = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def order(self, method: str, _: Mapping[str, object]) -> None:
        await asyncio.sleep(0)  # the answer comes later
        if self.broken:
            raise OSError("broken")
        if (method == "Suspend") == (self.state == "SUSPENDED"):
            raise Refused("WrongState", method)
        self.told.set()
        self.state = "SUSPENDED" if method == "Suspend" else "RUNNING"

    async def ask(self, method: str, _: Mapping[str, object]) -> Mapping[str, object]:
        assert method == "Status"
        return {"parameters": {"step": {"state": self.state}}}


class Queue(Watcher):
    """`refusal`: why it does not suspend a job; `why`: why it does not let one go on."""

    def __init__(self, why: str, refusal: str = "") -> None:
        self.suspended: list[int] = []
        self.why = why
        self.refusal = refusal

    def job_suspended(self, job: int, *, by_owner: bool = False) -> str:
        self.suspended.append(job)
        return self.refusal

    def job_resuming(self, job: int) -> str:
        del job
        return self.why


class Plugins:
    """Task plugins that have the functions `failing`, which fail, and note each call."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.called: list[str] = []

    def has(self, row: Hook) -> bool:
        return row.call in {"task_p_slurmd_suspend_job", "task_p_slurmd_resume_job"}

    def call(self, caller: object, row: Hook, arguments: Sequence[object]) -> Outcome:
        del caller
        assert arguments == (7,)
        self.called.append(row.call)
        return Outcome(-1, f"plugin task/held: {row.call}: no") if row.call in self.failing else OK


def suspension_of(
    steps: dict[int, Step], why: str = "", refusal: str = "", plugins: Plugins | None = None
) -> tuple[Suspensions, Queue]:
    queue = Queue(why, refusal)
    live: Any = steps
    further: Any = SimpleNamespace(running=lambda _: list(steps.values()), wake=lambda _: None)
    resources = Resources(SimpleNamespace(trace=False), plugins or Plugins(), live)  # type: ignore[arg-type]
    return Suspensions("", further, resources, SimpleNamespace(begin=lambda work: work.close()), lambda: queue), queue  # type: ignore[arg-type]


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


@pytest.mark.parametrize("whole", [True, False])
def test_all_steps_go_on_where_the_queue_does_not_suspend_the_job(whole: bool) -> None:
    """They stood still, and for the queue the job ran: it could not be resumed."""

    async def play() -> None:
        steps = {0: Step(0), 1: Step(1)}
        plugins = Plugins()
        suspension, queue = suspension_of(steps, refusal="plugin select/no: no", plugins=plugins)
        if not whole:
            await suspension.suspend(steps[0])  # type: ignore[arg-type]
        with pytest.raises(Refused, match=r"step .* goes on: plugin select/no: no"):
            await (suspension.suspend_job(7) if whole else suspension.suspend(steps[1]))  # type: ignore[arg-type]
        assert [one.state for one in steps.values()] == ["RUNNING" if whole else "SUSPENDED", "RUNNING"]
        assert [one.suspended for one in steps.values()] == [not whole, False]
        assert queue.suspended == [7]
        assert plugins.called == ["task_p_slurmd_suspend_job", "task_p_slurmd_resume_job"]

    asyncio.run(play())


def test_all_steps_go_on_where_a_task_plugin_does_not_give_the_jobs_resources_up() -> None:
    """It was a line in the log, and the queue gave the job's CPUs to others."""

    async def play() -> None:
        steps = {0: Step(0), 1: Step(1)}
        plugins = Plugins("task_p_slurmd_suspend_job")
        suspension, queue = suspension_of(steps, plugins=plugins)
        with pytest.raises(Refused, match="goes on: job 7: plugin task/held: task_p_slurmd_suspend_job: no"):
            await suspension.suspend_job(7)
        assert not any(one.suspended for one in steps.values())
        assert not queue.suspended
        assert plugins.called == ["task_p_slurmd_suspend_job", "task_p_slurmd_resume_job"]

    asyncio.run(play())


def test_job_that_no_plugin_suspends_nor_lets_go_on_can_be_resumed_later() -> None:
    async def play() -> None:
        steps = {0: Step(0), 1: Step(1)}
        plugins = Plugins("task_p_slurmd_suspend_job", "task_p_slurmd_resume_job")
        suspension, _ = suspension_of(steps, plugins=plugins)
        with pytest.raises(Refused, match="stands still without being suspended"):
            await suspension.suspend_job(7)
        assert all(one.suspended for one in steps.values())
        assert suspension.has_stopped(7)
        plugins.failing.clear()
        await suspension.resume_job(7)
        assert [one.state for one in steps.values()] == ["RUNNING", "RUNNING"]
        assert not suspension.has_stopped(7)

    asyncio.run(play())


def test_job_of_an_earlier_daemon_goes_on_where_the_queue_does_not_suspend_it() -> None:
    async def play() -> None:
        steps = {0: Step(0, "SUSPENDED"), 1: Step(1, "SUSPENDED")}
        steps[1].suspended = True
        suspension, queue = suspension_of(steps, refusal="plugin select/no: no")
        suspension._resources.found_suspended()
        await suspension.take_over(7)
        assert queue.suspended == [7]
        assert "RUNNING" in [one.state for one in steps.values()]

    asyncio.run(play())


def test_suspended_jobs_of_a_user_take_one_thread_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The daemon's few threads also look up accounts: while the kernel reclaimed the memory of many jobs of one user,
    nobody's launch went on.
    """
    for job in range(20):
        (tmp_path / f"job_{job}").mkdir()
        (tmp_path / f"job_{job}/memory.reclaim").touch()
        (tmp_path / f"job_{job}/memory.current").write_text("1\n")

    async def play() -> None:
        running: list[str] = []
        reclaimed: list[str] = []
        begins, go_on = asyncio.Event(), asyncio.Event()

        async def in_a_thread(_write: object, path: str, _used: bytes) -> None:
            running.append(path)
            begins.set()
            await go_on.wait()
            running.remove(path)
            assert not running
            reclaimed.append(path)

        monkeypatch.setattr(asyncio, "to_thread", in_a_thread)
        suspensions = Suspensions(str(tmp_path), *[SimpleNamespace()] * 4)  # type: ignore[arg-type]  # none is asked
        begun = []
        for job in range(20):
            step = SimpleNamespace(uid=1000, cgroup=f"/job_{job}/step_0")
            live: Any = SimpleNamespace(step=step, suspended=job != 7)  # job 7 has been resumed meanwhile
            begun.append(asyncio.ensure_future(suspensions._reclaim(live)))
        await begins.wait()
        await asyncio.sleep(0)  # others would have begun
        assert len(running) == 1
        go_on.set()
        await asyncio.gather(*begun)
        assert len(reclaimed) == 19

    asyncio.run(play())
