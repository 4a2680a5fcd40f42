"""Plugins that fail, starts that fail, clocks that jump, restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.model.states import COMPLETING, PENDING, RUNNING
from nodectl.scheduler.decisions import NotAdmitted, Start
from unit.scheduler.bench import Bench, numbers, policy, selection_of

PLUGIN = """
from nodectl.plugin_api import SLURM_ERROR, SLURM_SUCCESS
plugin_type = "select/broken"
plugin_name = "broken"
plugin_version = (22, 5, 8)
broken = []
def select_p_job_test(job_ptr, bitmap, min_nodes, max_nodes, req_nodes, mode, preemption_candidates, preempted_jobs,
                      exc_core_bitmap):
    if mode != 1 and "test" in broken:
        raise RuntimeError("lost my mind")
    if job_ptr.name == "cursed" and mode != 1:
        raise RuntimeError("cursed")
    return SLURM_SUCCESS
def select_p_job_begin(job_ptr):
    return SLURM_ERROR if "begin" in broken else SLURM_SUCCESS
"""


@pytest.fixture
def broken(tmp_path: Path) -> tuple[Bench, list[str]]:
    file = tmp_path / "broken.py"
    file.write_text(PLUGIN)
    selection = selection_of(plugin=str(file))
    hook: Any = selection._calls._hooks["select_p_job_test"]
    return Bench(selection=selection), hook.__globals__["broken"]


def test_a_job_waits_longer_each_time_that_the_plugin_fails(broken: tuple[Bench, list[str]]) -> None:
    bench, faults = broken
    faults.append("test")
    job = bench.submit()
    pauses = []
    for _ in range(12):
        assert bench.look() == []
        assert "lost my mind" in bench.scheduler.explain(job, bench.at).words
        at = bench.scheduler.next_time(bench.at)
        assert at is not None
        pauses.append(at - bench.at)
        bench.at = at
    assert pauses == sorted(pauses)
    assert pauses[0] < 10
    assert pauses[-1] == 600
    faults.clear()
    assert bench.look() == [job]


def test_a_plugin_that_fails_for_one_job_holds_up_nobody_else(broken: tuple[Bench, list[str]]) -> None:
    bench, _ = broken
    cursed = [bench.submit(name="cursed") for _ in range(2)]
    other = bench.submit()
    assert bench.look() == [other]
    assert all(job.job_state == PENDING for job in cursed)


def test_a_plugin_that_fails_for_all_is_not_asked_for_each_of_ten_thousand(broken: tuple[Bench, list[str]]) -> None:
    bench, faults = broken
    for _ in range(200):
        bench.submit()
    faults.append("test")
    before = bench.scheduler._backfill.tests
    assert bench.look() == []
    assert bench.scheduler._backfill.tests - before < 20
    assert bench.scheduler.next_time(bench.at) != bench.at


def test_a_job_that_the_plugin_does_not_begin_waits(broken: tuple[Bench, list[str]]) -> None:
    bench, faults = broken
    faults.append("begin")
    job = bench.submit()
    assert bench.look() == []
    assert bench.selection.ledger.is_empty()
    assert bench.reason(job) == "JobLaunchFailure"
    fast = bench.job()
    assert bench.scheduler.try_start(fast, bench.at) == "JobLaunchFailure"
    assert fast.job_id not in bench.scheduler.jobs
    faults.clear()
    assert bench.look(60) == [job]


def test_who_could_not_begin_waits_and_is_released_by_hand() -> None:
    bench = Bench()
    job = bench.run(8)
    bench.scheduler.begin_failed(job, "prolog failed", bench.at)
    assert bench.selection.ledger.is_empty()
    assert (job.restart_cnt, bench.look()) == (1, [])
    assert "prolog failed" in bench.scheduler.explain(job, bench.at).words
    bench.scheduler.release(job, bench.at)
    assert bench.look() == [job]


def test_a_job_that_can_never_run_is_refused() -> None:
    bench = Bench()
    with pytest.raises(NotAdmitted):
        bench.submit(9)
    with pytest.raises(NotAdmitted):
        bench.submit(1, gres={"gpu": 5})
    assert bench.scheduler.jobs == {}


def test_what_is_ending_holds_its_resources() -> None:
    bench = Bench()
    job = bench.run(8)
    waiting = bench.submit(8)
    bench.scheduler.ending(job, bench.at)
    assert job.job_state == COMPLETING
    assert bench.look() == []
    assert bench.scheduler.try_start(bench.job(), bench.at) != ""
    assert bench.selection.faults == []
    bench.end(job)
    assert bench.look() == [waiting]


def test_a_drained_node_starts_nothing_and_says_so() -> None:
    bench = Bench()
    node = bench.selection.nodes[0]
    node.node_state |= 0x200
    node.reason = "fan broken"
    bench.selection.update_node_state(node)
    bench.scheduler.changed()
    job = bench.submit()
    assert bench.look() == []
    said = bench.scheduler.explain(job, bench.at)
    assert said.reason == "ReqNodeNotAvail"
    assert "fan broken" in said.words
    node.node_state &= ~0x200
    bench.selection.update_node_state(node)
    bench.scheduler.changed()
    assert bench.look() == [job]


def step(bench: Bench, number: int, what: str) -> None:
    """Something that users do, to the job that it concerns first."""
    scheduler = bench.scheduler
    active = [job for job in scheduler.jobs.values() if job.is_active]
    waiting = [job for job in scheduler.jobs.values() if job.job_state == PENDING]
    if what == "submit":
        bench.submit(1 + number % 8, user=1000 + number % 3, begin_time=bench.at + 50 if number % 4 == 0 else 0.0)
    elif what == "try":
        scheduler.try_start(bench.job(1 + number % 3), bench.at)
    elif what == "end" and active:
        bench.end(active[number % len(active)])
    elif what in ("suspend", "resume", "requeue") and active:
        getattr(scheduler, what)(active[0], bench.at)
    elif what == "hold" and waiting:
        scheduler.hold(waiting[0], "user", bench.at)
    elif what == "release" and waiting:
        scheduler.release(waiting[0], bench.at)


_STEPS = ["submit", "end", "try", "hold", "release", "suspend", "resume", "requeue"]


@given(st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(-100_000, 100_000)), max_size=40))
@settings(max_examples=60, deadline=None)
def test_the_clock_may_jump_at_any_time(steps: list[tuple[str, int]]) -> None:
    bench = Bench(policy(max_wait=1000, jobs=4))
    for number, (what, jump) in enumerate(steps):
        bench.at += jump
        step(bench, number, what)
        bench.look()
        for job in bench.scheduler.line(bench.at):
            assert bench.scheduler.explain(job, bench.at).reason
            assert job.priority >= 0
        bench.scheduler.next_time(bench.at)
    for _ in range(len(steps) * 3):
        for job in list(bench.scheduler.jobs.values()):
            if job.is_active:
                bench.end(job)
            elif job.held:
                bench.scheduler.release(job, bench.at)
        bench.at = max(bench.at + 100, bench.scheduler.next_time(bench.at) or 0)
        bench.look()
    assert bench.scheduler.jobs == {}
    assert bench.selection.ledger.is_empty()


def test_all_that_is_known_lives_through_a_restart() -> None:
    bench = Bench(policy(jobs=2))
    running, ending, suspended = bench.run(2, user=1), bench.run(2, user=2), bench.run(2, user=3)
    bench.scheduler.ending(ending, bench.at)
    bench.scheduler.suspend(suspended, bench.at)
    held, waiting = bench.submit(held="admin"), bench.submit(8)
    rows = bench.scheduler.usage(bench.at + 100)
    after = Bench(policy(jobs=2), selection=bench.selection)
    after.at = bench.at + 200
    after.scheduler.restore([running, ending, suspended, held, waiting], after.at)
    assert running.job_state == RUNNING
    assert after.look() == []
    assert [after.reason(job) for job in (held, waiting)] == ["JobHeldAdmin", "Resources"]
    for job in (running, ending, suspended):
        after.end(job)
    assert after.look() == [waiting]
    assert numbers(after.scheduler.jobs.values()) == [held.job_id, waiting.job_id]
    assert rows


def test_a_pass_can_be_left_and_what_changes_meanwhile_is_seen() -> None:
    bench = Bench()
    one, two, three = bench.submit(4), bench.submit(4), bench.submit(4)
    sweep = bench.scheduler.schedule(bench.at)
    assert next(sweep) == Start(one)
    bench.scheduler.cancel(two, bench.at)
    bench.end(one)
    four = bench.submit(4)
    del sweep
    assert bench.look() == [three, four]


def test_nothing_is_to_be_done_at_rest() -> None:
    bench = Bench()
    bench.run(8)
    for _ in range(100):
        bench.submit(1)
    bench.look()
    assert bench.scheduler.next_time(bench.at) is None
    before = bench.scheduler._backfill.tests
    for _ in range(1000):
        assert not list(bench.scheduler.schedule(bench.at))
    assert bench.scheduler._backfill.tests == before


def test_where_all_share_the_machine_an_end_holds_up_nobody() -> None:
    bench = Bench(plugin="select/linear", over_subscribe="force", share_count=10_000)
    jobs = [bench.run(8, limit=0) for _ in range(20)]
    bench.scheduler.ending(jobs[0], bench.at)
    new = bench.job(8, limit=0)
    assert bench.scheduler.try_start(new, bench.at) == ""
    assert bench.selection.faults == []
