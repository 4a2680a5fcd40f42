"""Parts of the controller: names of jobs, leases, group commits, rounds, starts, copies of scripts."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.model.states import COMPLETING, RUNNING, SUSPENDED
from nodectl.model.wire.dispatch import Refused
from nodectl.scheduler.decisions import CANCEL, SUSPEND, Decision, NotAdmitted, Preempt, Start
from nodectl.selection.records import BATCH, JobRecord
from nodectl.service.daemon.controller import controller as controller_module
from nodectl.service.daemon.controller import restore
from nodectl.service.daemon.controller import rounds as rounds_module
from nodectl.service.daemon.controller.commits import Commits, NotWritten
from nodectl.service.daemon.controller.controller import Controller
from nodectl.service.daemon.controller.job_names import BadName, JobName, name_of, parse
from nodectl.service.daemon.controller.leases import Leases
from nodectl.service.daemon.controller.rounds import Rounds
from nodectl.service.daemon.controller.spool import Spool


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("7", JobName(7)),
        (" 7 ", JobName(7)),
        ("7_3", JobName(7, "3", [range(3, 4)])),
        ("7_[0-4,8]", JobName(7, "0-4,8", [range(5), range(8, 9)])),
        ("7_0-4:2", JobName(7, "0-4:2", [range(0, 5, 2)])),
    ],
)
def test_names_are_read(text: str, name: JobName) -> None:
    assert parse(text) == name


@pytest.mark.parametrize(
    "text", ["", "0", "-7", "x", "7_", "7_[0-4", "7_0]", "7_x", "7.0", "99999999999", "7_[0-4] ;", "7_5-1"]
)
def test_what_is_no_name_is_refused_with_one_line(text: str) -> None:
    with pytest.raises(BadName) as error:
        parse(text)
    assert "\n" not in str(error.value)


def test_jobs_are_called_as_people_write_them() -> None:
    assert name_of(JobRecord(7)) == "7"
    assert name_of(JobRecord(9, array_job_id=7, array_task_id=0)) == "7_0"
    assert name_of(JobRecord(7, array_job_id=7, array_tasks="1-9", array_limit=2)) == "7_[1-9%2]"


def test_lease_ends_when_nobody_asks_and_not_while_somebody_does() -> None:
    async def play() -> list[int]:
        over: list[int] = []
        gone = {1: asyncio.Event(), 2: asyncio.Event()}

        def end(job: int) -> None:
            over.append(job)
            gone[job].set()

        leases = Leases(0.05, end)
        leases.begin(1)
        leases.begin(2)
        leases.begin(3)
        leases.end(3)
        with leases.asked(2):
            await gone[1].wait()
            await asyncio.sleep(0.2)
            assert over == [1]
        await gone[2].wait()
        leases.end_all()
        return over

    assert asyncio.run(play()) == [1, 2]


class Disk:
    """A store that counts its commits, and may be full."""

    def __init__(self) -> None:
        self.commits = 0
        self.full = False
        self.is_behind = True

    def commit(self) -> None:
        self.commits += 1
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")


def test_what_one_turn_puts_goes_with_one_commit() -> None:
    async def play() -> int:
        disk: Any = Disk()
        commits = Commits(disk)
        await asyncio.gather(*(commits.durable() for _ in range(100)))
        return int(disk.commits)

    assert asyncio.run(play()) == 1


def test_full_disk_is_told_to_everybody_who_waits_and_to_the_log_once(capfd: pytest.CaptureFixture[str]) -> None:
    async def play() -> None:
        disk: Any = Disk()
        disk.full = True
        commits = Commits(disk)
        for _ in range(3):
            with pytest.raises(NotWritten, match="disk is full"):
                await commits.durable()
        commits.soon()
        await asyncio.sleep(0)
        disk.full = False
        await commits.durable()

    asyncio.run(play())
    assert capfd.readouterr().err.count("disk is full") == 1


class Plan:
    """A scheduler of so many decisions in each round."""

    def __init__(self, decisions: int) -> None:
        self.decisions = decisions
        self.rounds = 0
        self.next: float | None = None
        self.fails = False

    def schedule(self, now: float) -> Iterator[Decision | None]:
        self.rounds += 1
        for number in range(self.decisions):
            yield Start(JobRecord(number + 1)) if number % 2 else None
        if self.fails:
            self.fails = False
            raise RuntimeError("one job's fault")

    def changed(self) -> None:
        self.decisions += 2  # the jobs that the round that failed had still to look at

    def next_time(self, now: float) -> float | None:
        return self.next


def test_changes_that_come_together_make_one_round_and_rest_makes_none() -> None:
    async def play() -> tuple[int, list[int]]:
        plan: Any = Plan(4)
        over = asyncio.Event()
        seen: list[int] = []
        rounds = Rounds(plan, lambda found: seen.extend(one.job.job_id for one in found), over.set)
        for _ in range(10):
            rounds.kick()
        await over.wait()
        await asyncio.sleep(0.05)
        rounds.end()
        return plan.rounds, seen

    assert asyncio.run(play()) == (1, [2, 4])


def test_change_during_a_round_makes_another_one() -> None:
    async def play() -> int:
        plan: Any = Plan(2)
        over = asyncio.Event()
        rounds: Rounds

        def carry_out(found: list[Decision]) -> None:
            if plan.rounds == 1:
                rounds.kick()

        rounds = Rounds(plan, carry_out, lambda: over.set() if plan.rounds == 2 else None)
        rounds.kick()
        await over.wait()
        rounds.end()
        return int(plan.rounds)

    assert asyncio.run(play()) == 2


def test_error_in_a_round_stops_neither_what_was_decided_nor_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "_AGAIN", 0.01)

    async def play() -> tuple[int, list[int], list[str]]:
        plan: Any = Plan(4)
        plan.fails = True
        over = asyncio.Event()
        seen: list[int] = []
        errors: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: errors.append(str(told["exception"])))
        rounds = Rounds(plan, lambda found: seen.extend(one.job.job_id for one in found), over.set)
        rounds.kick()
        await asyncio.wait_for(over.wait(), 30)
        rounds.kick()
        rounds.end()
        return plan.rounds, seen, errors

    assert asyncio.run(play()) == (2, [2, 4, 2, 4, 6], ["one job's fault"])


def test_job_id_that_cannot_be_drawn_is_told_as_the_scheduler_expects() -> None:
    def full() -> int:
        raise Refused("LaunchRefused", "no job id can be drawn: the disk is full")

    numbers: Any = SimpleNamespace(new_job=full)
    with pytest.raises(NotAdmitted, match="disk is full"):
        restore._new_id(numbers)


def controller_of(jobs: Iterable[JobRecord], *, written: bool) -> tuple[Any, list[object]]:
    """As much of a controller as it takes to carry out decisions; what begins, and what ends."""
    happened: list[object] = []
    commits = SimpleNamespace(now=lambda: "" if written else "the disk is full", soon=lambda: None)
    store = SimpleNamespace(is_behind=True)
    table: Any = SimpleNamespace(
        jobs={job.job_id: job for job in jobs}, changed=lambda _: None, commits=commits, store=store
    )
    registry = SimpleNamespace(steps_of=lambda _: [], first=lambda _: None)
    notices = SimpleNamespace(watch=lambda _: None, forget=lambda _: None, begun=lambda _: None)
    parts: Any = SimpleNamespace(registry=registry, further_steps=None, starts=SimpleNamespace(), notices=notices)
    config: Any = SimpleNamespace(interactive_lease=60.0)
    controller: Any = Controller(config, table, parts)
    controller.scheduler = SimpleNamespace(
        ending=lambda *_: None,
        ended=lambda *_: happened.append("ended"),
        begin_failed=lambda *_: happened.append("failed"),
    )
    controller._begin_batch = lambda job: job.job_id
    controller.tasks = SimpleNamespace(begin=happened.append)
    return controller, happened


def test_nothing_is_kept_of_a_job_that_has_ended_before_its_warning() -> None:
    """Its time may be up a year later, and a user has thousands of jobs one after the other."""

    async def life() -> None:
        job = JobRecord(7, job_state=RUNNING, time_limit=3600, start_time=time.time())
        job.details.signal = "USR1@60"
        controller, _ = controller_of([job], written=True)
        controller.table.ended = lambda _: None
        controller.leases = SimpleNamespace(end=lambda _: None)
        controller._after_end = lambda: None
        controller._watch_warning(job)
        assert list(controller._warnings) == [7]
        controller._end_for_good(job, "COMPLETED", 0)
        assert not controller._warnings

    asyncio.run(life())


@pytest.mark.parametrize("by", [-7200.0, 7200.0])
def test_a_clock_that_is_set_brings_no_warning_of_a_time_limit_earlier_or_later(
    monkeypatch: pytest.MonkeyPatch, by: float
) -> None:
    """The limit itself is counted by a clock that nobody sets."""
    wall, boot = 1_000_000.0, 500.0
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "clock_gettime", lambda _: boot)
    job = JobRecord(7, job_state=RUNNING, time_limit=3600, start_time=wall)
    job.details.signal = "USR1@60"
    controller, _ = controller_of([job], written=True)
    corrected: list[float] = []

    def clock_set(seconds: float, now: float) -> None:
        corrected.append(now)
        job.start_time += seconds

    controller._begun = True
    controller.scheduler.clock_set = clock_set
    controller.rounds = SimpleNamespace(kick=lambda: None)
    controller.table.changed_soon = lambda _: None
    wall, boot = wall + 100 + by, boot + 100
    assert controller._left_to_warning(job) == 3600 - 60 - 100
    wall, boot = wall + 100, boot + 100
    assert controller._left_to_warning(job) == 3600 - 60 - 200
    assert corrected == [1_000_100.0 + by]


def test_job_whose_first_step_is_gone_is_not_asked_about_again_at_once() -> None:
    job = JobRecord(7, job_state=RUNNING, joining=((8, 0),))

    async def at_once() -> None:
        """As if it were on the disk."""

    controller, _ = controller_of([job], written=True)
    controller.table.commits.durable = at_once
    assert asyncio.run(controller._try_to_grow(job)) is False
    job.job_state = COMPLETING
    assert asyncio.run(controller._try_to_grow(job)) is True


@pytest.mark.parametrize("written", [True, False])
def test_job_that_is_cancelled_in_the_turn_that_starts_it_is_not_forgotten(*, written: bool) -> None:
    job, by = (JobRecord(number, held_by=BATCH, job_state=RUNNING) for number in (7, 8))
    controller, happened = controller_of([job], written=written)
    over: list[str] = []
    controller._end_for_good = lambda one, state, _: over.append(state)
    controller._carry_out([Start(job), Preempt(job, CANCEL, by)])
    assert happened == ([7] if written else [])
    assert over == ([] if written else ["PREEMPTED"])
    assert controller.is_doomed(7) == written  # who starts it looks for this
    assert (7 in controller._starting) == written


class Stopped:
    """Jobs that are to make room: as much of a controller as that takes. `outcome` is what comes of the suspension;
    `stay` are those of which the scheduler is told that they run on.
    """

    def __init__(self, outcome: Callable[[JobRecord], object]) -> None:
        self.victim, *self.urgent = (JobRecord(number, held_by=BATCH, job_state=RUNNING) for number in (7, 8, 9))
        self.controller, self.stay = controller_of([self.victim], written=True)
        self.asked = 0
        self.grace = asyncio.Event()
        self._outcome = outcome
        self.controller.parts.suspension = SimpleNamespace(suspend_job=self._suspend)
        self.controller.scheduler.stays = self._stays
        self.controller.rounds = SimpleNamespace(kick=lambda: None)

    async def _suspend(self, number: int) -> None:
        self.asked += 1
        await self.grace.wait()
        self._outcome(self.victim)

    def _stays(self, job: JobRecord, _: float) -> None:
        self.stay.append(job.job_id)
        job.preempted_by = 0

    def play(self, by: int = 1) -> list[object]:
        """So many jobs claim the victim's room, one after the other, within its time of grace."""

        async def play() -> None:
            tasks: list[asyncio.Task[None]] = []
            self.controller.tasks.begin = lambda work: tasks.append(asyncio.get_running_loop().create_task(work))
            for urgent in self.urgent[:by]:
                self.controller._carry_out([Preempt(self.victim, SUSPEND, urgent)])
                await asyncio.sleep(0)
            self.grace.set()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(play())
        assert not self.controller._stopping
        return self.stay


def refuses(_: JobRecord) -> None:
    raise Refused("WrongState", "step 7.batch has no task yet: its prolog is running")


def breaks(_: JobRecord) -> None:
    raise OSError("no descriptor is left")


def stands_still(job: JobRecord) -> None:
    job.job_state = SUSPENDED


@pytest.mark.parametrize("outcome", [refuses, breaks])
def test_job_that_cannot_be_suspended_keeps_nobody_waiting_for_it(outcome: Callable[[JobRecord], object]) -> None:
    assert Stopped(outcome).play() == [7]


def test_job_is_suspended_once_whoever_claims_its_room_meanwhile() -> None:
    """The second time it had no step that runs, and what it made room for was forgotten: it stood still for ever."""
    stopped = Stopped(stands_still)
    assert stopped.play(by=2) == []
    assert stopped.asked == 1
    assert stopped.victim.preempted_by == 9


def test_job_that_makes_room_is_not_resumed_meanwhile() -> None:
    job = JobRecord(7, held_by=BATCH, job_state=RUNNING, preempted_by=8)
    controller, _ = controller_of([job], written=True)
    assert controller.job_resuming(7) == "it makes room for job 8"
    job.preempted_by = 0
    assert controller.job_resuming(7) == ""


def no_descriptor(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def test_copy_of_a_script_is_its_users_alone_and_goes_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    spool = Spool(str(state))
    path = Path(spool.write(7, b"#!/bin/sh\n", os.getuid(), os.getgid()))
    assert path.read_bytes() == b"#!/bin/sh\n"
    assert path.stat().st_mode & 0o777 == 0o700
    assert path.parent.stat().st_mode & 0o022 == 0
    assert state.stat().st_mode & 0o777 == 0o711  # who executes it has to reach it
    spool.write(8, b"#!/bin/sh\n", os.getuid(), os.getgid())
    (path.parent.parent / "strange").mkdir()
    spool.sweep({8})
    assert os.listdir(path.parent.parent) == ["job8"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_descriptor)
        patch.setattr(os, "scandir", no_descriptor)
        spool.remove(8)
    assert os.listdir(path.parent.parent) == []


def test_the_hours_of_a_week_are_written_also_while_no_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset of the machine would forget them."""
    monkeypatch.setattr(controller_module, "_HOURS_SECONDS", 0.0)
    monkeypatch.setattr(controller_module, "_USAGE_SECONDS", 0.0)
    written: list[list[object]] = []

    async def play() -> None:
        enough = asyncio.Event()

        def put_week(rows: list[object]) -> None:
            written.append(rows)
            if len(written) > 2:
                enough.set()

        store: Any = SimpleNamespace(put_usage=lambda _: None, put_week=put_week)
        nothing: Any = SimpleNamespace(soon=lambda: None, end=lambda _: None)
        table: Any = SimpleNamespace(store=store, commits=nothing)
        parts: Any = SimpleNamespace(registry=None, further_steps=None, starts=nothing)
        controller = Controller(SimpleNamespace(interactive_lease=60.0), table, parts)  # type: ignore[arg-type]
        controller.scheduler = SimpleNamespace(usage=lambda _: [], week_rows=lambda at: [at])  # type: ignore[assignment]
        controller._write_hours()
        await asyncio.wait_for(enough.wait(), 60)

    asyncio.run(play())
    assert written
