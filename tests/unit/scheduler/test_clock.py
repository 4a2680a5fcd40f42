"""The machine's clock is set back, by days or years: nobody loses a place, nobody is forgotten, everything ends."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nodectl.scheduler.policy import Policy, WeekHours
from unit.scheduler.bench import PLAIN, Bench, numbers

YEARS = 20 * 366 * 86_400


def test_who_has_waited_keeps_the_place_before_those_who_come_later() -> None:
    bench = Bench(Policy(priority_weight_fairshare=0))
    running = bench.run(8)
    first = bench.submit(8)
    bench.look()
    bench.at -= 500_000
    bench.look()
    bench.at += 1
    second = bench.submit(8)
    bench.look()
    assert numbers(bench.scheduler.line(bench.at)) == [first.job_id, second.job_id]
    bench.end(running)
    assert bench.look() == [first]


def test_the_bound_on_waiting_is_kept() -> None:
    bench = Bench(replace(PLAIN, max_wait=1000))
    running = bench.run(8)
    first = bench.submit(8, nice=10_000)
    bench.look()
    bench.at -= 500_000
    bench.look()
    bench.at += 1
    bench.submit(8, user=1001)
    bench.look(1001)
    bench.end(running)
    assert bench.look() == [first]


def test_the_rest_of_a_long_line_is_looked_at_as_soon_as_before() -> None:
    bench = Bench(replace(PLAIN, bf_max_job_test=1, bf_interval=30))
    bench.run(4, limit=1000)
    for _ in range(3):
        bench.submit(6)
    short = bench.submit(1, limit=100)
    assert bench.look() == []
    bench.at -= 500_000
    started = bench.look(60)
    for _ in range(5):
        started += bench.look(60)
    assert short in started


def test_a_job_that_runs_is_expected_to_end_within_its_limit() -> None:
    bench = Bench()
    job = bench.run(8, limit=600)
    bench.at -= 500_000
    waiting = bench.submit(8)
    bench.look()
    assert job.end_time <= bench.at + 600
    assert bench.scheduler.expected_start(waiting, bench.at) == job.end_time


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3), st.integers(-YEARS, 100_000)), max_size=25))
def test_however_the_clock_goes_all_jobs_start_in_the_end(steps: list[tuple[int, int, int]]) -> None:
    bench = Bench(replace(PLAIN, max_wait=1000, bf_max_job_test=2), nodes="1s:8c:1t")
    bench.at = 3e9
    jobs = []
    for cpus, user, jump in steps:
        jobs.append(bench.submit(cpus, user=1000 + user, limit=100))
        bench.look()
        bench.at = max(bench.at + jump, 86_400.0)  # no clock is set to before 1970
    started: list[int] = []
    for _ in range(4 * len(steps) + 4):
        bench.look(31)
        for number in bench.running():
            started.append(number)
            bench.end(bench.scheduler.jobs[number])
    assert sorted(started) == numbers(jobs)


@given(st.sampled_from([-500_000, -3600, 3600, 500_000]))
def test_a_clock_that_is_set_charges_no_user_and_makes_no_job_older_or_younger(by: int) -> None:
    bench = Bench(replace(PLAIN, week_hours=(WeekHours((1000, 0)),)))
    job, stopped = bench.run(2, limit=600), bench.run(2, user=1001, limit=600)
    bench.at += 40
    bench.scheduler.suspend(stopped, bench.at)
    bench.at += 60
    used = bench.scheduler.usage(bench.at)
    bench.at += by
    bench.scheduler.clock_set(by, bench.at)
    assert [row[:2] for row in bench.scheduler.usage(bench.at)] == [row[:2] for row in used]
    assert (job.used_seconds(bench.at), stopped.used_seconds(bench.at)) == (100, 40)
    assert job.end_time == bench.at + 500
    assert sum(float(str(row["cpu_hours"])) for row in bench.scheduler.week_hours(bench.at)) == (100 + 40) * 2 / 3600
    bench.scheduler.resume(stopped, bench.at)
    assert stopped.used_seconds(bench.at) == 40
