"""explain tells the truth at each moment: which rule, for whom, when, and what would change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.scheduler.explain import Explanation
from nodectl.scheduler.forecast import Forecast
from nodectl.selection.modes import NODE_STATE_DRAIN, SELECT_MODE_WILL_RUN
from nodectl.selection.records import JobRecord, ReservationRequest
from unit.scheduler.bench import PLAIN, Bench, policy


def test_the_first_in_line_is_told_who_has_what_it_needs() -> None:
    bench = Bench()
    ann, _bob = bench.run(5, user=1, limit=600), bench.run(2, user=2, limit=50)
    job = bench.submit(4)
    said = bench.scheduler.explain(job, bench.at)
    assert (said.reason, said.expected_start) == ("Resources", bench.at + 600)
    assert said.words == "it is the next to start: it asks for 4 CPUs, 1 is free"
    assert f"job {ann.job_id} of u1" in said.for_whom
    assert said.what_would_help == ("a job of at most 1 CPU",)


def test_who_stands_behind_is_told_who_is_before_and_which_limit_would_help() -> None:
    bench = Bench()
    bench.run(5, limit=600)
    first = bench.submit(8, limit=100)
    second = bench.submit(2, limit=601)
    assert bench.look() == []
    said = bench.scheduler.explain(second, bench.at)
    assert said.reason == "Priority"
    assert said.for_whom == (f"job {first.job_id} of u1000",)
    assert said.words == f"1 job before it in line; it would take what job {first.job_id} needs"
    assert said.what_would_help == ("a time limit of at most 00:10:00: then it could start at once",)
    assert said.expected_start == bench.at + 700
    bench.scheduler.update(second, {"time_limit": 600}, bench.at)
    assert bench.look() == [second], "what it was told helps"


def test_jobs_without_limits_are_named_as_what_hides_the_future() -> None:
    bench = Bench()
    bench.run(8, limit=0)
    job = bench.submit(1)
    said = bench.scheduler.explain(job, bench.at)
    assert any("time limits" in one for one in said.what_would_help)
    assert said.expected_start is None, "not a year from now"
    assert bench.scheduler.briefs([job], bench.at)[0].expected_start is None


def test_who_has_a_failed_prolog_is_not_told_that_an_administrator_holds_his_job() -> None:
    bench = Bench()
    job = bench.run()
    bench.scheduler.requeue(job, bench.at)
    bench.scheduler.hold(job, "admin", bench.at)
    assert bench.scheduler.briefs([job], bench.at)[0].words == "it did not start, or was queued again, and is held"
    other = bench.submit()
    bench.scheduler.hold(other, "admin", bench.at)
    assert bench.scheduler.briefs([other], bench.at)[0].words == "an administrator holds it"


def test_the_queue_says_that_the_machine_is_drained() -> None:
    bench = Bench()
    (node,) = bench.selection.nodes
    node.node_state |= NODE_STATE_DRAIN
    node.reason = "new disk"
    bench.selection.update_node_state(node)
    first, second = bench.submit(1), bench.submit(1)
    bench.scheduler.changed()
    assert bench.look() == []
    said = [bench.scheduler.briefs([job], bench.at)[0] for job in (first, second)]
    assert [one.reason for one in said] == ["ReqNodeNotAvail", "Priority"]
    assert said[0].words == "nodes that it needs start no jobs now: n1 (new disk)"


def test_the_queue_says_that_a_reservation_keeps_what_is_free() -> None:
    bench = Bench()
    bench.scheduler.reserve(
        ReservationRequest("course", bench.at, bench.at + 3600, core_cnt=4, users=("ann",)), bench.at
    )
    job = bench.submit(8, limit=600)
    assert bench.look() == []
    said = bench.scheduler.briefs([job], bench.at)[0]
    assert (said.reason, said.expected_start) == ("Reservation", bench.at + 3600)
    assert "kept by course" in said.words


def test_a_job_that_waits_for_jobs_and_a_reservation_is_told_of_both() -> None:
    bench = Bench()
    bench.run(5, limit=300)
    begin = bench.at + 400
    bench.scheduler.reserve(ReservationRequest("course", begin, begin + 3600, core_cnt=4, users=("ann",)), bench.at)
    job = bench.submit(8, limit=600)
    said = bench.scheduler.explain(job, bench.at)
    assert said.reason == "Resources"
    assert said.words.endswith("; course keeps cores or devices when it would run")


def test_what_is_told_of_one_array_task_names_the_task() -> None:
    bench = Bench()
    array = bench.submit(4, array_tasks="3-4")
    bench.look()
    job = bench.submit(8)
    assert f"job {array.array_job_id}_3 of u1000" in bench.scheduler.explain(job, bench.at).for_whom


def test_a_job_that_runs_waits_for_nothing() -> None:
    bench = Bench()
    job = bench.run()
    assert bench.scheduler.explain(job, bench.at) == Explanation("", "the job is running", (), bench.at)


_ASKED = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3), st.integers(1, 60)), min_size=1, max_size=15)


@given(_ASKED, st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_the_brief_word_the_long_one_and_what_happens_agree(asked: list[tuple[int, int, int]], limit: int) -> None:
    bench = Bench(replace(PLAIN, limits=policy(jobs=limit).limits))
    jobs = [
        bench.submit(cpus, user=1000 + user, limit=tens * 10, held="user" if tens == 7 else "")
        for cpus, user, tens in asked
    ]
    bench.look()
    for job in jobs:
        brief, long = bench.scheduler.briefs([job], bench.at)[0], bench.scheduler.explain(job, bench.at)
        assert brief.reason == long.reason
        if job.is_active:
            assert brief.reason == ""
        elif job.held:
            assert brief.reason == "JobHeldUser"
        else:
            assert brief.reason in ("Resources", "Priority", "QOSMaxJobsPerUserLimit")
            assert brief.words
    firsts = [job for job in jobs if bench.reason(job) == "Resources"]
    assert len(firsts) <= 1
    if firsts and not limit:
        start = bench.scheduler.expected_start(firsts[0], bench.at)
        assert start is not None
        bench.at = start
        for job in jobs:
            if job.is_active and job.end_time <= start:
                bench.end(job)
        assert firsts[0] in bench.look(), "it starts when it was said"


def test_a_forecast_puts_each_where_it_fits_first() -> None:
    forecast = Forecast(0.0, 2, 100, [(10.0, 2, 0), (20.0, 4, 50)])
    assert forecast.start(4, 0, 10) == 10.0
    assert forecast.start(2, 0, 10) == 0.0
    assert forecast.start(1, 0, 5) == 20.0
    assert forecast.start(9, 0, 5) is None
    assert forecast.start(1, 120, 5) == 20.0


def questions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The modes of what the plugin is asked from now on."""
    asked, real = [], bench.selection.job_test

    def counted(job: JobRecord, mode: int, **more: Any) -> Any:
        asked.append(mode)
        return real(job, mode, **more)

    monkeypatch.setattr(bench.selection, "job_test", counted)
    return asked


def test_a_long_list_costs_the_plugin_no_more_questions_than_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    running = bench.run(8, limit=100)
    jobs = [bench.submit(8, limit=100) for _ in range(50)]
    bench.look()
    bench.end(running)  # something is free, and nobody has looked
    asked = questions(bench, monkeypatch)
    bench.scheduler.briefs(jobs[:1], bench.at)
    few = len(asked)
    bench.scheduler.briefs(jobs, bench.at)
    assert 0 < len(asked) <= 2 * few + 1


@pytest.mark.parametrize("ask", ["line", "briefs", "explain", "expected_start"])
def test_who_asks_about_a_long_line_has_the_plugin_asked_few_questions(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with another time limit, on a full machine: of none is it known yet that it would be given too much."""
    bench = Bench(policy(cpus=5), nodes="1s:4c:2t,mem=8G")
    bench.run(4, limit=50_000), bench.run(4, user=2000, limit=1000)
    jobs = [bench.submit(1, limit=100 + number) for number in range(200)]
    assert not bench.look()
    asked, before = questions(bench, monkeypatch), bench.scheduler._backfill.tests
    about = {"line": (), "briefs": (jobs,)}.get(ask, (jobs[-1],))
    getattr(bench.scheduler, ask)(*about, bench.at)
    assert 0 < len(asked) <= 20
    assert bench.scheduler._backfill.tests == before, "the queue's own bound is not touched"
    assert bench.reason(jobs[0]) == "QOSMaxCpuPerUserLimit"


def test_who_asks_about_the_first_in_line_has_the_plugin_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(policy(cpus=5))
    bench.run(8, user=0)
    job = bench.submit(1)
    bench.scheduler.changed()
    asked = questions(bench, monkeypatch)
    assert bench.scheduler.briefs([job], bench.at)[0].reason == "Resources"
    assert asked.count(SELECT_MODE_WILL_RUN) == 1
