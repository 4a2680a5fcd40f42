"""The hours that a user, or some users together, may use in a week."""

from __future__ import annotations

import time
from dataclasses import replace
from unittest.mock import Mock

import pytest

from nodectl.scheduler import week
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.policy import week_lines
from nodectl.scheduler.scheduler import Scheduler
from nodectl.scheduler.week import begin_of, end_of
from unit.scheduler.bench import PLAIN, Bench, selection_of

CPU, GPU = "AssocGrpCPUMinutesLimit", "AssocGrpGRESMinutes"
HOUR = 3600


def bench(*lines: str) -> Bench:
    made = Bench(replace(PLAIN, week_hours=week_lines(lines)))
    made.at = begin_of(made.at) + HOUR
    return made


def test_a_week_is_from_monday_to_monday_also_where_the_clocks_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        in_autumn = 1_792_800_000.0  # 2026-10-24, the day before clocks are set back
        assert time.strftime("%F %T %a", time.localtime(begin_of(in_autumn))) == "2026-10-19 00:00:00 Mon"
        assert time.strftime("%F %T", time.localtime(end_of(in_autumn))) == "2026-10-26 00:00:00"
        assert end_of(in_autumn) - begin_of(in_autumn) == 169 * HOUR
        assert begin_of(end_of(in_autumn)) == end_of(in_autumn)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_job_waits_for_the_hours_that_running_jobs_may_still_use() -> None:
    queue = bench("CpuHours=10")
    first = queue.run(4, limit=2 * HOUR)
    second = queue.submit(1, limit=3 * HOUR)
    other = queue.run(1, user=2000, limit=10 * HOUR)
    assert queue.look() == []
    said = queue.scheduler.explain(second, queue.at)
    assert (said.reason, said.expected_start) == (CPU, end_of(queue.at))
    assert said.words == (
        "u1000 used 0 of 10 CPU-hours of this week, and running jobs may use 8 more; this job may use 3"
    )
    queue.at += HOUR
    queue.end(first)  # after one hour of two
    assert queue.look() == [second]
    assert other.job_id in queue.running()


def test_used_hours_come_back_on_monday_and_the_queue_looks_then() -> None:
    queue = bench("CpuHours=8")
    first = queue.run(8, limit=HOUR)
    queue.at += HOUR
    queue.end(first)
    second = queue.submit(1, limit=HOUR)
    assert queue.look() == []
    assert "used 8 of 8 CPU-hours" in queue.scheduler.explain(second, queue.at).words
    monday = end_of(queue.at)
    assert queue.scheduler.next_time(queue.at) == monday
    queue.at = monday
    assert queue.look() == [second]


def test_a_job_that_runs_over_sunday_uses_hours_of_both_weeks() -> None:
    queue = bench("CpuHours=10")
    queue.at = end_of(queue.at) - HOUR
    queue.run(2, limit=4 * HOUR)
    queue.at += 2 * HOUR
    waiting = queue.submit(1, limit=5 * HOUR)
    assert queue.look() == []
    assert (
        "used 2 of 10 CPU-hours of this week, and running jobs may use 4 more"
        in queue.scheduler.explain(waiting, queue.at).words
    )


def test_gpus_count_apart_from_other_devices_and_users_of_a_line_share() -> None:
    queue = bench("CpuHours=1000", "Users=u1000,u2000 GpuHours=3")
    queue.run(gres={"gpu": 2}, limit=HOUR)
    waiting = queue.submit(gres={"gpu": 2}, limit=HOUR, user=2000)
    free = queue.submit(gres={"gpu": 2}, limit=HOUR, user=3000)
    assert queue.look() == [free]
    said = queue.scheduler.explain(waiting, queue.at)
    assert (said.reason, said.words.partition(" used ")[0]) == (GPU, "u1000, u2000")
    together, alone = queue.scheduler.week_hours(queue.at + HOUR)
    assert together == {
        "users": ["u1000", "u2000"], "cpu_hours": 1.0, "cpu_limit": None, "gpu_hours": 2.0, "gpu_limit": 3,
    }  # fmt: skip
    assert (alone["users"], alone["cpu_limit"], alone["gpu_limit"]) == (["u3000"], 1000, None)


def test_what_can_never_run_is_refused_and_root_has_no_limit() -> None:
    queue = bench("CpuHours=10")
    with pytest.raises(NotAdmitted, match="up to 12 CPU-hours, 10 is the most in a week: name a shorter --time"):
        queue.submit(4, limit=3 * HOUR)
    with pytest.raises(NotAdmitted, match="without a --time"):
        queue.submit(1, limit=0)
    with pytest.raises(NotAdmitted, match=CPU):
        queue.scheduler.try_start(queue.job(4, limit=3 * HOUR), queue.at)
    queue.run(4, user=0, limit=30 * HOUR)
    with pytest.raises(NotAdmitted, match=CPU):
        queue.scheduler.update(queue.submit(2, limit=5 * HOUR), {"ntasks": 3}, queue.at)


def test_the_next_daemon_knows_the_hours_and_counts_on() -> None:
    lines = week_lines(("CpuHours=10",))
    queue = bench("CpuHours=10")
    job = queue.run(2, limit=4 * HOUR)
    queue.at += HOUR
    rows, usage = queue.scheduler.week_rows(queue.at), queue.scheduler.usage(queue.at)
    assert [row[:3] for row in rows] == [("u1000", 2 * HOUR, 0)]
    selection = selection_of()
    selection.start("/nonexistent", [job], queue.at)
    after = Scheduler(selection, replace(PLAIN, week_hours=lines), usage=usage, week=rows)
    after.restore([job], queue.at)
    assert after.week_rows(queue.at + HOUR)[0][1] == 4 * HOUR


def test_a_job_that_ended_while_no_daemon_ran_has_used_nothing_since() -> None:
    queue = bench("CpuHours=1000")
    gone, lives = queue.run(2, limit=40 * HOUR), queue.run(1, limit=40 * HOUR)
    began = queue.at
    rows, usage = queue.scheduler.week_rows(began + HOUR), queue.scheduler.usage(began + HOUR)
    gone.job_state, gone.end_time = "COMPLETING", began + 2 * HOUR
    selection, at = selection_of(), began + 10 * HOUR
    selection.start("/nonexistent", [gone, lives], at)
    after = Scheduler(selection, replace(PLAIN, week_hours=week_lines(("CpuHours=1000",))), usage=usage, week=rows)
    after.restore([gone, lives], at)
    after.ended(gone, "COMPLETED", 0, at)
    assert after.week_rows(at)[0][1] == (2 * 2 + 10) * HOUR


def test_running_jobs_are_added_up_once_a_round_and_anew_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = bench("CpuHours=10")
    running = queue.run(4, limit=2 * HOUR)
    waiting = [queue.submit(1, limit=3 * HOUR + number) for number in range(20)]
    waiting.append(queue.submit(3, limit=2 * HOUR + 60))
    sums = Mock(wraps=week._sum)
    monkeypatch.setattr(week, "_sum", sums)
    assert queue.look() == []
    assert {job.state_reason for job in waiting} == {CPU}
    assert sums.call_count == 2, "what was used, and what may be"
    queue.scheduler.update(running, {"time_limit": HOUR}, queue.at)
    assert "may use 4 more" in queue.scheduler.explain(waiting[-1], queue.at).words


def test_without_limits_nothing_is_counted() -> None:
    queue = Bench()
    queue.run()
    assert queue.scheduler.week_rows(queue.at + HOUR) == []
