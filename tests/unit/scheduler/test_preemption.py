"""Jobs make room for more urgent ones: suspended, queued again, or cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.scheduler.decisions import Preempt, Resume
from nodectl.selection.modes import RUNNING, SUSPENDED
from nodectl.selection.records import RUN, JobRecord
from unit.scheduler.bench import Bench, policy


def bench_of(mode: str) -> Bench:
    return Bench(policy(f"Name=normal PreemptMode={mode}", "Name=high Priority=10 Preempt=normal"))


def preempts(bench: Bench) -> list[tuple[JobRecord, str, JobRecord]]:
    bench.decided.clear()
    bench.look()
    return [(one.job, one.how, one.for_job) for one in bench.decided if isinstance(one, Preempt)]


def resumed(bench: Bench) -> list[JobRecord]:
    bench.decided.clear()
    bench.look()
    return [one.job for one in bench.decided if isinstance(one, Resume)]


@pytest.mark.parametrize("mode", ["requeue", "cancel"])
def test_a_job_makes_room_and_nobody_else_takes_it(mode: str) -> None:
    bench = bench_of(mode)
    old = bench.run(4)
    bench.at += 10
    young = bench.run(4)
    urgent = bench.submit(4, qos="high")
    assert preempts(bench) == [(young, mode, urgent)]
    assert bench.reason(urgent) == "Resources"
    assert bench.scheduler.explain(urgent, bench.at).for_whom == (f"job {young.job_id} of u1000",)
    assert preempts(bench) == [], "nobody is told twice"
    bench.scheduler.ending(young, bench.at)
    other = bench.submit(1, limit=1)
    assert bench.look() == []
    if mode == "requeue":
        bench.scheduler.requeue(young, bench.at)
        assert young.restart_cnt == 1
    else:
        bench.end(young, "PREEMPTED")
    assert bench.look() == [urgent]
    assert old.job_state == RUNNING
    assert bench.reason(other) in ("Priority", "Resources")


def test_a_job_that_cannot_be_queued_again_is_cancelled() -> None:
    bench = bench_of("requeue")
    job = bench.run(8, held_by=RUN)
    urgent = bench.submit(1, qos="high")
    assert preempts(bench) == [(job, "cancel", urgent)]


def test_a_suspended_job_goes_on_before_others_take_its_cpus() -> None:
    bench = bench_of("suspend")
    usual = bench.run(8, pn_min_memory=1000)
    urgent = bench.submit(4, qos="high", pn_min_memory=1000)
    assert preempts(bench) == [(usual, "suspend", urgent)]
    assert bench.scheduler.suspend(usual, bench.at) == ""
    assert bench.look() == [urgent]
    assert usual.job_state == SUSPENDED
    assert bench.scheduler.explain(usual, bench.at).reason == "Preempted"
    waiting = bench.submit(2, limit=10)
    bench.at += 100
    bench.end(urgent)
    assert resumed(bench) == [usual]
    assert usual.job_state == RUNNING
    assert usual.suspended_seconds == 100
    assert usual.end_time == usual.start_time + 3600 + 100
    assert bench.reason(waiting) in ("Priority", "Resources")


def test_memory_that_suspended_jobs_keep_is_not_given_twice() -> None:
    bench = bench_of("suspend")
    bench.run(8, pn_min_memory=6000)
    bench.submit(4, qos="high", pn_min_memory=6000)
    assert preempts(bench) == []


def test_without_a_mode_nobody_makes_room() -> None:
    bench = Bench(policy("Name=high Priority=10 Preempt=normal"))
    bench.run(8)
    urgent = bench.submit(4, qos="high")
    assert preempts(bench) == []
    assert bench.reason(urgent) == "Resources"
    bench = Bench(policy("Name=high Priority=10 Preempt=normal", preempt_mode="cancel"))
    job = bench.run(8)
    assert preempts_of(bench, job)


def preempts_of(bench: Bench, job: JobRecord) -> bool:
    bench.submit(4, qos="high")
    return [one[0] for one in preempts(bench)] == [job]


def test_what_was_kept_for_an_urgent_job_is_free_when_it_is_cancelled() -> None:
    bench = bench_of("cancel")
    running = bench.run(8)
    urgent = bench.submit(8, qos="high")
    assert len(preempts(bench)) == 1
    bench.scheduler.cancel(urgent, bench.at)
    usual = bench.submit(8)
    bench.end(running, "PREEMPTED")
    assert bench.look() == [usual]


def test_urgent_jobs_do_not_make_the_same_jobs_go_for_each_other() -> None:
    bench = bench_of("cancel")
    first, second = bench.run(4), bench.run(4)
    bench.submit(4, qos="high"), bench.submit(4, qos="high")
    gone = preempts(bench)
    assert {job.job_id for job, _, _ in gone} == {first.job_id, second.job_id}
    assert len({for_job.job_id for _, _, for_job in gone}) == 2


@pytest.mark.parametrize("given", [{"gres": {"gpu": 2}}, {"pn_min_memory": 8000}])
def test_devices_and_memory_are_made_free_too(given: dict[str, Any]) -> None:
    bench = bench_of("cancel")
    holder = bench.run(1, gres={"gpu": 4}, pn_min_memory=4000)
    bench.run(1)
    urgent = bench.submit(1, qos="high", **given)
    assert preempts(bench) == [(holder, "cancel", urgent)]
