"""select/cons_tres: when a job will run, and whom it takes the place of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.selection.answers import Choice, Refusal
from nodectl.selection.modes import SELECT_MODE_RUN_NOW, SELECT_MODE_TEST_ONLY, SELECT_MODE_WILL_RUN
from nodectl.selection.records import JobRecord
from unit.selection.tres import Bed, nodes, parameters

Draw = Callable[..., Any]  # of hypothesis
NOW = 1000.0


def will_run(bed: Bed, job: JobRecord, **more: object) -> float:
    found = bed.test(job, SELECT_MODE_WILL_RUN, now=NOW, **more)
    assert isinstance(found, Choice)
    return found.start_time


def test_a_job_will_run_when_enough_of_those_that_run_have_ended() -> None:
    bed = Bed(nodes(1, "1s:4c:1t"))
    for limit in (300, 100, 200):
        assert bed.start(bed.job("ntasks=1", time_limit=limit), NOW)
    assert [will_run(bed, bed.job(f"ntasks={count}")) - NOW for count in (1, 2, 3, 4)] == [0, 100, 200, 300]


def test_a_job_without_a_limit_ends_in_a_year_and_one_that_is_late_soon() -> None:
    bed = Bed(nodes(1, "1s:2c:1t"))
    assert bed.start(bed.job("ntasks=1"), NOW)
    assert bed.start(bed.job("ntasks=1", time_limit=10), NOW - 500)
    assert will_run(bed, bed.job("ntasks=1")) == NOW + 1
    assert will_run(bed, bed.job("ntasks=2")) == NOW + 365 * 86_400


def test_memory_and_devices_are_waited_for_too() -> None:
    bed = Bed(nodes(1, "1s:8c:1t", 1000, "00"))
    assert bed.start(bed.job("ntasks=1", time_limit=50, pn_min_memory=700), NOW)
    assert bed.start(bed.job("ntasks=1", time_limit=70, gres={"gpu": 2}), NOW)
    assert will_run(bed, bed.job("ntasks=1", pn_min_memory=400)) == NOW + 50
    assert will_run(bed, bed.job("ntasks=1", gres={"gpu": 1})) == NOW + 70


def test_what_a_suspended_job_keeps_is_waited_for() -> None:
    bed = Bed(nodes(1, "1s:2c:1t", 1000))
    stopped = bed.job("ntasks=2", time_limit=50, pn_min_memory=700)
    assert bed.start(stopped, NOW)
    bed.suspend(stopped)
    assert will_run(bed, bed.job("ntasks=2", pn_min_memory=300)) == NOW
    assert will_run(bed, bed.job("ntasks=2", pn_min_memory=400)) == NOW + 50


def test_cores_held_for_others_never_become_free() -> None:
    bed = Bed(nodes(1, "1s:4c:1t"))
    assert bed.start(bed.job("ntasks=2", time_limit=50), NOW)
    excluded = bed.cores({0: 0b1000})
    assert will_run(bed, bed.job("ntasks=3"), excluded_cores=excluded) == NOW + 50
    assert isinstance(bed.test(bed.job("ntasks=4"), SELECT_MODE_WILL_RUN, excluded_cores=excluded, now=NOW), Refusal)


def preempting(bed: Bed, job: JobRecord, candidates: list[JobRecord]) -> list[int] | None:
    found = bed.test(job, SELECT_MODE_RUN_NOW, candidates=candidates)
    return sorted(one.job_id for one in found.preempted) if isinstance(found, Choice) else None


def test_no_more_jobs_are_preempted_than_needed() -> None:
    bed = Bed(nodes(1, "1s:8c:1t"))
    jobs = [bed.job(f"ntasks={count}") for count in (1, 2, 4, 1)]
    assert all(map(bed.start, jobs))
    assert preempting(bed, bed.job("ntasks=1"), jobs) == [1]
    assert preempting(bed, bed.job("ntasks=4"), jobs) == [3], "the third alone is enough: the first two are spared"
    assert preempting(bed, bed.job("ntasks=2"), jobs) == [1, 2] or preempting(bed, bed.job("ntasks=2"), jobs) == [2]
    assert preempting(bed, bed.job("ntasks=8"), jobs) == [1, 2, 3, 4]
    assert preempting(bed, bed.job("ntasks=8"), jobs[:3]) is None
    assert preempting(bed, bed.job("ntasks=9"), jobs) is None
    assert isinstance(bed.test(bed.job("ntasks=8")), Refusal), "and without candidates nobody is"


def test_a_job_that_fits_preempts_nobody() -> None:
    bed = Bed(nodes(2, "1s:4c:1t"))
    victim = bed.job("ntasks=4")
    assert bed.start(victim)
    assert preempting(bed, bed.job("ntasks=4"), [victim]) == []


def test_only_jobs_on_the_chosen_nodes_are_preempted() -> None:
    bed = Bed(nodes(3, "1s:4c:1t"))
    jobs = [bed.job("ntasks=4") for _ in range(3)]
    assert all(map(bed.start, jobs))
    assert preempting(bed, bed.job("ntasks=4", "nodelist=n2"), jobs) == [2]
    assert preempting(bed, bed.job("ntasks=8", "nodes=2"), list(reversed(jobs))) == [2, 3]


def test_a_job_that_takes_the_place_of_others_will_run_now() -> None:
    bed = Bed(nodes(1, "1s:4c:1t"))
    victim = bed.job("ntasks=4", time_limit=500)
    assert bed.start(victim, NOW)
    found = bed.test(bed.job("ntasks=2"), SELECT_MODE_WILL_RUN, candidates=[victim], now=NOW)
    assert isinstance(found, Choice)
    assert (found.start_time, found.preempted) == (NOW, [victim])


def _full(draw: Draw) -> Bed:
    """Some nodes on which jobs are."""
    sharing = draw(st.sampled_from(("no", "force")))
    bed = Bed(nodes(draw(st.integers(1, 3)), "2s:3c:1t", 1000, "01"), parameters(sharing=sharing, count=2))
    for _ in range(draw(st.integers(0, 12))):
        bed.start(_job(bed, draw), NOW - draw(st.integers(0, 50)))
    return bed


def _job(bed: Bed, draw: Draw) -> JobRecord:
    return bed.job(
        f"ntasks={draw(st.integers(1, 8))}",
        time_limit=draw(st.integers(1, 100)),
        mem_per_cpu=draw(st.sampled_from((0, 100))),
        gres=draw(st.sampled_from(({}, {"gpu": 1}))),
        share_res=draw(st.sampled_from((None, None, False))),
    )


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_job_that_ever_fits_will_run_before_all_others_have_ended_and_then_it_does(data: st.DataObject) -> None:
    bed = _full(data.draw)
    job = _job(bed, data.draw)
    ever = bed.test(job, SELECT_MODE_TEST_ONLY)
    found = bed.test(job, SELECT_MODE_WILL_RUN, now=NOW)
    assert isinstance(ever, Choice) == isinstance(found, Choice)
    if not isinstance(found, Choice):
        return
    ends = {one.job_id: max(one.start_time + one.time_limit, NOW + 1) for one in bed.jobs}
    assert found.start_time <= max(ends.values(), default=NOW)
    assert found.start_time == NOW or found.start_time in ends.values()
    # The time keeps its word, and is the first one that does.
    for last in (True, False):
        for one in list(bed.jobs):
            if (ends[one.job_id] < found.start_time) or (last is False and ends[one.job_id] == found.start_time):
                bed.end(one)
        fits = isinstance(bed.test(job, now=found.start_time), Choice)
        assert fits == (not last or found.start_time == NOW)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whoever_is_preempted_is_enough_and_nobody_of_them_could_stay(data: st.DataObject) -> None:
    bed = _full(data.draw)
    job = _job(bed, data.draw)
    candidates = data.draw(st.lists(st.sampled_from(bed.jobs), unique_by=id)) if bed.jobs else []
    found = bed.test(job, candidates=candidates)
    if isinstance(found, Refusal):
        for one in candidates:
            bed.end(one)
        assert isinstance(bed.test(job), Refusal), "it would have fitted without them"
        return
    assert all(one in candidates for one in found.preempted)
    for spared in found.preempted:
        others = [one for one in found.preempted if one is not spared]
        assert isinstance(bed.test(job, candidates=others), Refusal) or not others, "one of them could have stayed"
    if found.preempted:
        assert isinstance(bed.test(job), Refusal)
    for one in found.preempted:
        bed.end(one)
    assert bed.start(job), "they are enough"
