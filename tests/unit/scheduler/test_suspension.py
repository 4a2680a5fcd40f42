"""A suspended job gives its CPUs to others, and takes them back when they are free."""

from __future__ import annotations

from nodectl.model.states import RUNNING, SUSPENDED
from nodectl.scheduler.decisions import Resume
from nodectl.selection.records import RUN
from unit.scheduler.bench import Bench


def test_cpus_are_free_and_memory_is_not() -> None:
    bench = Bench()
    job = bench.run(8, pn_min_memory=6000)
    greedy = bench.submit(1, pn_min_memory=6000)
    modest = bench.submit(1, pn_min_memory=1000, limit=60)
    assert bench.scheduler.suspend(job, bench.at) == ""
    assert job.job_state == SUSPENDED
    assert bench.look() == [modest]
    assert bench.reason(greedy) == "Resources"


def test_it_goes_on_as_soon_as_its_cpus_are_free() -> None:
    bench = Bench()
    job = bench.run(8)
    other = bench.submit(8)
    bench.scheduler.suspend(job, bench.at)
    assert bench.look() == [other]
    assert "another job" in bench.scheduler.resume(job, bench.at)
    assert job.job_state == SUSPENDED
    assert bench.reason(job) == "Resources"
    third = bench.submit(1)
    bench.end(other)
    bench.decided.clear()
    assert bench.look() == []
    assert bench.decided == [Resume(job)]
    assert job.job_state == RUNNING
    assert bench.reason(third) == "Resources"


def test_who_no_longer_wants_to_go_on_keeps_no_cpus() -> None:
    bench = Bench()
    job = bench.run(8)
    other = bench.submit(4)
    bench.scheduler.suspend(job, bench.at)
    assert bench.look() == [other]
    bench.scheduler.resume(job, bench.at)
    third = bench.submit(4)
    assert bench.look() == []
    assert bench.scheduler.suspend(job, bench.at) == ""
    bench.scheduler.changed()
    assert bench.look() == [third]


def test_it_can_end_and_be_queued_again_while_it_is_suspended() -> None:
    bench = Bench()
    job = bench.run(8, pn_min_memory=6000)
    bench.scheduler.suspend(job, bench.at)
    bench.scheduler.requeue(job, bench.at)
    assert bench.look() == [job]
    bench.scheduler.suspend(job, bench.at)
    bench.end(job)
    assert bench.submit(8, pn_min_memory=8000) in bench.look()


def test_use_is_not_charged_while_it_is_suspended() -> None:
    bench = Bench()
    job = bench.run(4)
    bench.at += 100
    bench.scheduler.suspend(job, bench.at)
    used = bench.scheduler.usage(bench.at)[0][1]
    bench.at += 100
    assert bench.scheduler.usage(bench.at)[0][1] <= used
    bench.scheduler.resume(job, bench.at)
    bench.at += 100
    assert bench.scheduler.usage(bench.at)[0][1] > used * 1.9


def test_use_is_charged_and_time_runs_while_its_owner_has_suspended_it() -> None:
    bench, other = Bench(), Bench()
    job, going_on = bench.run(4, limit=600), other.run(4, limit=600)
    end = job.end_time
    for at in (bench, other):
        at.at += 100
    bench.scheduler.suspend(job, bench.at, by_owner=True)
    assert job.end_time == end
    for at in (bench, other):
        at.at += 100
    assert bench.scheduler.usage(bench.at) == other.scheduler.usage(other.at)
    bench.scheduler.resume(job, bench.at)
    assert (job.end_time, job.suspended_seconds) == (end, 0.0)
    for at in (bench, other):
        at.at += 100
    assert bench.scheduler.usage(bench.at) == other.scheduler.usage(other.at)
    assert going_on.end_time == end


def test_what_is_not_running_cannot_be_suspended_nor_resumed() -> None:
    bench = Bench()
    bench.run(8)
    waiting = bench.submit(8)
    assert "pending" in bench.scheduler.suspend(waiting, bench.at)
    assert "not suspended" in bench.scheduler.resume(waiting, bench.at)


def test_who_was_found_standing_still_has_not_stood_for_ever() -> None:
    """A run's file does not say since when, and a daemon that comes later counted from the beginning of time."""
    bench = Bench()
    job = bench.run(8, limit=600, held_by=RUN)
    bench.scheduler.suspend(job, bench.at)
    job.suspend_time = 0.0
    after = Bench(selection=bench.selection)
    after.at = bench.at + 100
    after.scheduler.restore([job], after.at)
    after.at += 50
    assert after.scheduler.resume(job, after.at) == ""
    assert job.suspended_seconds == 50
    assert job.end_time <= after.at + 600


def test_a_suspended_job_that_ends_is_told_of_anew_as_one_that_ends() -> None:
    bench = Bench()
    job, other, ended = bench.run(1), bench.run(5), bench.run(1)
    bench.scheduler.suspend(job, bench.at)
    bench.scheduler.ending(job, bench.at)
    bench.end(ended)
    waits = bench.submit(3)  # with the core of the one that ends
    assert bench.look(1000.0) == []  # the plugin is told of all jobs once in a while
    assert not bench.selection.faults
    bench.end(job)
    bench.end(other)
    assert bench.look() == [waits]
