"""A job that was submitted to expand another one waits for it, and gives it all that it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from bitarray import bitarray
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.model.states import COMPLETING, PENDING
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.selection.records import JobRecord, ReservationRequest
from unit.scheduler.bench import Bench, policy


def expander(bench: Bench, target: JobRecord, cpus: int = 2, **fields: object) -> JobRecord:
    return bench.submit(cpus, dependency=f"expand:{target.job_id}", **fields)


def merged(bench: Bench, source: JobRecord) -> None:
    bench.scheduler.expand(source, bench.at)
    bench.scheduler.ending(source, bench.at)


def test_it_waits_for_the_other_to_run_and_lasts_as_long() -> None:
    bench = Bench()
    target = bench.submit(4, limit=7200, held="user")
    job = expander(bench, target, limit=60)
    assert bench.look() == []
    assert bench.reason(job) == "Dependency"
    bench.scheduler.release(target, bench.at)
    bench.look()
    assert {target.job_id, job.job_id} == bench.running()
    assert job.end_time >= target.end_time


def test_all_that_it_holds_is_the_others() -> None:
    bench = Bench()
    target = bench.run(4, pn_min_memory=1000)
    job = expander(bench, target, 2, pn_min_memory=500)
    assert bench.look() == [job]
    merged(bench, job)
    held = target.job_resrcs
    assert held is not None
    assert (held.ncpus, held.memory, target.total_cpus) == (6, {0: 1500}, 6)
    assert job.job_resrcs is None
    assert job.job_state == COMPLETING
    assert bench.selection.ledger.cpus_used(0).bit_count() == 6
    third = bench.submit(3)
    bench.end(job)
    assert bench.look() == [], "what was given is not free when the giver has ended"
    bench.end(target)
    assert bench.look() == [third]
    assert not bench.selection.faults


def test_what_the_givers_processes_still_use_is_nobodys_when_the_other_has_ended() -> None:
    bench = Bench()
    target = bench.run(4)
    job = expander(bench, target, 4)
    bench.look()
    merged(bench, job)
    more = bench.submit(5)
    bench.end(target)
    assert bench.look() == []
    assert bench.reason(more) == "Resources"
    bench.end(job)
    assert bench.look() == [more]
    assert not bench.selection.faults


def test_a_requeued_job_has_what_it_asks_for_and_the_giver_what_it_still_uses() -> None:
    bench = Bench()
    target = bench.run(4)
    job = expander(bench, target, 4)
    bench.look()
    merged(bench, job)
    target.joining = ((job.job_id, 0),)
    bench.scheduler.requeue(target, bench.at)
    assert not target.joining
    assert bench.look() == [target]
    assert target.total_cpus == job.total_cpus == 4


def test_the_other_keeps_its_cpus_while_the_giver_still_uses_some() -> None:
    bench = Bench()
    target = bench.run(4)
    job = expander(bench, target, 4)
    bench.look()
    merged(bench, job)
    assert f"job {job.job_id}" in bench.scheduler.suspend(target, bench.at)
    bench.end(job)
    assert bench.scheduler.suspend(target, bench.at) == ""


def test_one_user_has_no_more_by_expanding() -> None:
    bench = Bench(policy(cpus=6, jobs=2))
    target = bench.run(4)
    job = expander(bench, target, 2)
    bench.look()
    merged(bench, job)
    more = bench.submit(1)
    assert bench.look() == []
    bench.end(job)
    assert bench.look() == []
    assert bench.reason(more) == "QOSMaxCpuPerUserLimit"
    bench.end(target)
    assert bench.look() == [more]


def test_it_never_starts_when_the_other_ended_while_it_stood_in_line() -> None:
    bench = Bench()
    target = bench.run(4)
    job = expander(bench, target, 8)
    bench.look()
    assert bench.reason(job) == "Resources"
    bench.end(target)
    assert bench.look() == []
    assert bench.reason(job) == "DependencyNeverSatisfied"
    assert job.job_state == PENDING


def test_two_give_to_one() -> None:
    bench = Bench()
    target = bench.run(2)
    for cpus in (2, 4):
        job = expander(bench, target, cpus)
        bench.look()
        merged(bench, job)
    assert target.total_cpus == 8
    bench.end(target)
    assert bench.look() == []
    assert bench.selection.ledger.cpus_used(0).bit_count() == 6


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another user's": ({"user": 1001}, {}, "has no other job"),
    "with devices": ({}, {"gres": {"gpu": 1}}, "has devices"),
    "onto devices": ({"gres": {"gpu": 1}}, {}, "has devices"),
    "another reservation": ({}, {"reservation": "r"}, "another reservation"),
    "another qos": ({"qos": "high"}, {}, "another qos"),
    "an array": ({}, {"array_tasks": "0-3"}, "of an array"),
}


@pytest.mark.parametrize(("one", "two", "words"), REFUSED.values(), ids=REFUSED)
def test_is_refused_at_its_submission(one: dict[str, Any], two: dict[str, Any], words: str) -> None:
    bench = Bench(policy("name=high"))
    target = bench.run(1, **one)
    job = bench.job(1, dependency=f"expand:{target.job_id}", **two)
    if "array_tasks" in two:
        job.array_job_id = job.job_id
    if "reservation" in two:
        kept = ReservationRequest("r", bench.at, bench.at + 7200, core_cnt=1, users=("u1000",))
        bench.scheduler.reserve(kept, bench.at)
    with pytest.raises(NotAdmitted, match=words):
        bench.scheduler.submit(job, bench.at)
    assert job.job_id not in bench.scheduler.jobs


def test_chains_and_loops_are_refused() -> None:
    bench = Bench()
    target = bench.run(1)
    job = expander(bench, target, 1)
    with pytest.raises(NotAdmitted, match="expand another job itself"):
        expander(bench, job, 1)
    waits = bench.submit(1, held="user")
    later = expander(bench, waits, 1)
    for one, other in ((waits, target), (later, later)):
        with pytest.raises(NotAdmitted):
            bench.scheduler.update(one, {"dependency": f"expand:{other.job_id}"}, bench.at)
    assert waits.details.dependency == ""
    assert later.details.dependency == f"expand:{waits.job_id}"


def not_now(bench: Bench, how: str) -> Iterator[tuple[JobRecord, str]]:
    target = bench.run(1, limit=600)
    job = expander(bench, target, 1)
    bench.look()
    if how == "no expander":
        yield target, "expands no job"
    elif how == "suspended":
        bench.scheduler.suspend(target, bench.at)
        yield job, "SUSPENDED"
    elif how == "ended":
        bench.end(target)
        yield job, "expands no job"
    elif how == "ending":
        bench.scheduler.ending(target, bench.at)
        yield job, "COMPLETING"
    elif how == "longer":
        bench.scheduler.update(target, {"time_limit": 6000}, bench.at, is_admin=True)
        yield job, "may run longer"
    elif how == "twice":
        merged(bench, job)
        yield job, "COMPLETING"


@pytest.mark.parametrize("how", ["no expander", "suspended", "ended", "ending", "longer", "twice"])
def test_nothing_changes_hands_where_it_must_not(how: str) -> None:
    bench = Bench()
    for job, words in not_now(bench, how):
        before = bench.selection.ledger.cpus_used(0)
        with pytest.raises(NotAdmitted, match=words):
            bench.scheduler.expand(job, bench.at)
        assert bench.selection.ledger.cpus_used(0) == before
        assert not bench.selection.faults


def test_a_plugin_that_does_not_allow_it_is_asked_at_the_submission() -> None:
    bench = Bench()
    target = bench.run(1)
    bench.selection.expand_allow = lambda: False  # type: ignore[method-assign]
    with pytest.raises(NotAdmitted, match="cannot expand jobs"):
        expander(bench, target, 1)


def test_a_later_daemon_knows_who_expands_whom() -> None:
    bench = Bench()
    target = bench.run(2)
    job = expander(bench, target, 2)
    bench.look()
    later = Bench(selection=bench.selection)
    later.scheduler.restore([target, job], bench.at)
    assert later.scheduler.target_of(job) is target
    merged(later, job)
    assert target.total_cpus == 4


STEPS = st.lists(
    st.tuples(st.sampled_from(["run", "expander", "expand", "ending", "end", "requeue", "suspend", "resume", "limit"]),
              st.integers(0, 9), st.integers(1, 5)),
    max_size=40,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_no_core_is_two_jobs_whatever_is_given_to_whom(steps: list[tuple[str, int, int]]) -> None:
    bench = Bench()
    used: dict[int, bitarray] = {}  # by job that has given its cores away: on which its processes run
    for what, which, cpus in steps:
        jobs = list(bench.scheduler.jobs.values())
        job = jobs[which % len(jobs)] if jobs else bench.submit(1)
        with contextlib.suppress(NotAdmitted):
            mine = job.job_resrcs
            happens(bench, what, job, cpus)
            if what == "expand" and mine is not None:
                used[job.job_id] = mine.core_bitmap
        bench.look(1.0)
        held_once(bench, [cores for number, cores in used.items() if number in bench.scheduler.jobs])
    for job in list(bench.scheduler.jobs.values()):
        bench.end(job)
    assert bench.selection.ledger.is_empty()
    assert not bench.selection.faults


def happens(bench: Bench, what: str, job: JobRecord, cpus: int) -> None:
    if what == "run":
        bench.submit(cpus, pn_min_memory=cpus * 100)
    elif what == "expander":
        expander(bench, job, cpus, pn_min_memory=cpus * 100)
    elif what == "expand":
        target = bench.scheduler.target_of(job)
        merged(bench, job)
        target.joining = (*target.joining, (job.job_id, 0))
    elif what == "ending":
        bench.scheduler.ending(job, bench.at)
    elif what == "end":
        bench.end(job)
    elif what == "requeue" and not job.given_to:
        bench.scheduler.requeue(job, bench.at)
    elif what == "suspend":
        bench.scheduler.suspend(job, bench.at)
    elif what == "resume":
        bench.scheduler.resume(job, bench.at)
    else:
        bench.scheduler.update(job, {"time_limit": cpus * 1000}, bench.at, is_admin=True)


def held_once(bench: Bench, used: list[bitarray]) -> None:
    """What jobs hold, and what processes use of those that gave it away, is in the ledger, and no core twice."""
    taken = bench.selection.nodes.core_bitmap()
    memory = 0
    for job in bench.scheduler.jobs.values():
        held = job.job_resrcs
        if held is None or not job.is_active:
            continue
        memory += held.memory.get(0, 0)
        if not bench.selection.ledger.is_stopped(job):
            assert not (taken & held.core_bitmap).any()
            taken |= held.core_bitmap
    for job in bench.scheduler.jobs.values():
        if job.given_resrcs is not None:
            target = bench.scheduler.jobs[job.given_to].job_resrcs
            assert target is not None
            assert (job.given_resrcs.core_bitmap & target.core_bitmap) == job.given_resrcs.core_bitmap
    assert all((cores & taken) == cores for cores in used)
    assert bench.selection.ledger.busy == taken
    assert bench.selection.ledger.memory_used(0) == memory
