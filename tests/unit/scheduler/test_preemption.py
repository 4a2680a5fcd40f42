"""Jobs make room for more urgent ones: suspended, queued again, or cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.model.states import PENDING, RUNNING, SUSPENDED
from nodectl.scheduler.decisions import Preempt, Resume
from nodectl.selection.answers import PLUGIN, Refusal
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


def of_the_patient() -> tuple[Bench, JobRecord, JobRecord, JobRecord, JobRecord]:
    """One whose turn has come and who wants all; two that run, the second short, and one for which that is to go."""
    lines = ("Name=normal PreemptMode=requeue", "Name=high Priority=10 Preempt=normal")
    bench = Bench(policy(*lines, max_wait=100))
    old = bench.run(4, user=2000, limit=10_000)
    patient = bench.submit(8, user=7, limit=10)
    bench.at += 1
    short = bench.run(4, user=3000, limit=500)
    bench.at += 150
    urgent = bench.submit(4, qos="high", limit=100)
    assert preempts(bench) == [(short, "requeue", urgent)]
    return bench, old, patient, short, urgent


def test_who_waits_too_long_does_not_keep_off_for_whom_others_have_gone() -> None:
    """Otherwise the one that made room would have its place again, and make room again, without end."""
    bench, _, patient, short, urgent = of_the_patient()
    bench.scheduler.requeue(short, bench.at)
    assert preempts(bench) == []
    assert urgent.job_state == RUNNING
    assert next(bench.scheduler.in_order(bench.at)) is patient


def test_nobody_makes_room_for_whom_the_first_in_line_keeps_off() -> None:
    bench, old, patient, _, _ = of_the_patient()
    bench.scheduler.changed()
    bench.look()
    another = bench.submit(4, qos="high", limit=100)
    assert preempts(bench) == []
    assert old.job_state == RUNNING
    assert bench.reason(another) == "Priority"
    assert bench.scheduler.expected_start(patient, bench.at) is None, "nobody knows while others make room"


def test_nobody_makes_room_for_whom_memory_of_the_first_in_line_keeps_off() -> None:
    bench = bench_of("cancel")
    bench.run(1, qos="high", limit=1000, pn_min_memory=6000)
    victim = bench.run(1, limit=500, pn_min_memory=1500)
    first = bench.submit(1, qos="high", pn_min_memory=7000)
    assert preempts(bench) == []
    assert bench.reason(first) == "Resources"
    bench.submit(1, qos="high", limit=5000, pn_min_memory=2000)
    assert preempts(bench) == []
    assert victim.job_state == RUNNING
    short = bench.submit(1, qos="high", limit=900, pn_min_memory=2000)
    assert preempts(bench) == [(victim, "cancel", short)]


def test_for_whom_others_have_gone_waits_for_no_rest_of_a_long_line() -> None:
    lines = ("Name=normal PreemptMode=cancel", "Name=high Priority=10 Preempt=normal")
    bench = Bench(policy(*lines, bf_max_job_test=2))
    bench.run(4, qos="high", limit=5000)
    victim = bench.run(4, limit=5000)
    urgent = bench.submit(4, qos="high")
    assert preempts(bench) == [(victim, "cancel", urgent)]
    for number in range(5):
        bench.submit(4, direct_priority=30_000, limit=1000 + number)
    bench.look()
    bench.end(victim, "PREEMPTED")
    assert bench.look() == [urgent]


@pytest.mark.parametrize(
    ("held", "wanted"),
    [({"pn_min_memory": 5000}, {"pn_min_memory": 3000}), ({"gres": {"gpu": 3}}, {"gres": {"gpu": 2}})],
)
def test_who_has_made_room_does_not_take_its_memory_and_devices_again(
    held: dict[str, Any], wanted: dict[str, Any]
) -> None:
    bench = bench_of("requeue")
    bench.run(1, qos="high", limit=1000, pn_min_memory=2000, gres={"gpu": 1})
    victim = bench.run(1, limit=0, direct_priority=30_000, **held)
    bench.submit(1, direct_priority=20_000, pn_min_memory=7000)
    urgent = bench.submit(1, qos="high", limit=5000, direct_priority=1, **wanted)
    assert preempts(bench) == [(victim, "requeue", urgent)]
    bench.scheduler.requeue(victim, bench.at)
    assert preempts(bench) == []
    assert urgent.job_state == RUNNING
    assert victim.job_state == PENDING


def test_what_the_first_in_line_is_promised_of_it_is_not_kept_from_whom_others_have_gone_for() -> None:
    bench = bench_of("requeue")
    bench.run(1, qos="high", limit=1000, pn_min_memory=2000)
    victim = bench.run(1, limit=0, pn_min_memory=5000)
    first = bench.submit(1, direct_priority=30_000, pn_min_memory=7000)
    urgent = bench.submit(1, qos="high", limit=5000, pn_min_memory=3000)
    assert preempts(bench) == [(victim, "requeue", urgent)]
    bench.scheduler.ended(victim, "PREEMPTED", 0, bench.at)
    assert bench.look() == [urgent]
    assert bench.reason(first) == "Resources"


def test_who_has_made_room_and_runs_again_makes_room_no_more() -> None:
    """For whom it did waits for another one still, and would never be free to start elsewhere while it runs."""
    bench = bench_of("requeue")
    bench.run(2, qos="high", limit=100)
    quick, slow = bench.run(3, user=2000, direct_priority=30_000), bench.run(3, user=3000)
    urgent = bench.submit(6, qos="high", direct_priority=1)
    assert {one for one, _, _ in preempts(bench)} == {quick, slow}
    bench.scheduler.ending(slow, bench.at)
    bench.scheduler.requeue(quick, bench.at)
    bench.scheduler.update(quick, {"ntasks": 2}, bench.at)
    bench.end(bench.scheduler.jobs[1])
    assert bench.look() == [quick]
    assert bench.scheduler.explain(urgent, bench.at).for_whom == (f"job {slow.job_id} of u3000",)
    another = bench.submit(2, qos="high")
    assert preempts(bench) == [(quick, "requeue", another)], "it can make room for another one"
    bench.scheduler.ended(slow, "PREEMPTED", 0, bench.at)
    assert bench.look() == [urgent]


def test_memory_of_those_that_would_make_room_keeps_nobody_off() -> None:
    """They hold it neither now nor when the first in line starts."""
    bench = bench_of("cancel")
    bench.run(1, qos="high", limit=1000, pn_min_memory=6000)
    victim = bench.run(1, limit=5000, pn_min_memory=1500)
    first = bench.submit(1, direct_priority=30_000, pn_min_memory=6000)
    urgent = bench.submit(1, qos="high", limit=5000, pn_min_memory=2000)
    assert preempts(bench) == [(victim, "cancel", urgent)]
    bench.end(victim, "PREEMPTED")
    assert bench.look() == [urgent]
    assert bench.scheduler.expected_start(first, bench.at) == bench.at + 1000


def of_two_claims() -> tuple[Bench, list[JobRecord], list[JobRecord]]:
    """Two urgent jobs, of which neither finds its memory, and the two that make room for them."""
    bench = bench_of("cancel")
    victims = [bench.run(1, pn_min_memory=3000) for _ in range(2)]
    urgent = [bench.submit(1, qos="high", pn_min_memory=4000) for _ in range(2)]
    assert {one for one, _, _ in preempts(bench)} == {*victims}
    return bench, victims, urgent


def test_what_several_are_promised_is_kept_for_all_of_them() -> None:
    bench, victims, urgent = of_two_claims()
    greedy, modest = (bench.submit(1, pn_min_memory=memory, limit=10) for memory in (1000, 192))
    assert bench.look() == [modest]
    for one in victims:
        bench.end(one, "PREEMPTED")
    assert bench.look() == urgent
    assert bench.reason(greedy) == "Resources"


def test_what_others_are_promised_for_longer_is_not_there_for_the_first_in_line_either() -> None:
    bench = bench_of("cancel")
    bench.run(1, qos="high", limit=1000, pn_min_memory=3000)
    victim = bench.run(1, limit=5000, pn_min_memory=3000)
    first = bench.submit(1, direct_priority=30_000, pn_min_memory=4100)
    urgent = bench.submit(1, qos="high", limit=5000, pn_min_memory=4000)
    assert preempts(bench) == [(victim, "cancel", urgent)]
    long, short = (bench.submit(1, pn_min_memory=1000, limit=limit) for limit in (5000, 900))
    assert bench.look() == [short]
    bench.end(victim, "PREEMPTED")
    assert bench.look() == [urgent]
    assert bench.scheduler.expected_start(first, bench.at) == bench.at + 1000
    assert bench.reason(long) == "Priority"


def test_nothing_is_kept_for_who_waits_for_another_job_again() -> None:
    bench = bench_of("cancel")
    victim = bench.run(4, user=2000)
    urgent = bench.submit(6, qos="high", name="solo", dependency="singleton")
    assert preempts(bench) == [(victim, "cancel", urgent)]
    same = bench.job(1, name="solo")
    assert bench.scheduler.try_start(same, bench.at) == ""
    assert bench.look() == []
    assert bench.reason(urgent) == "Dependency"
    other = bench.submit(3, user=3000)
    assert bench.look() == [other]


def test_nothing_is_kept_for_a_job_for_which_the_plugin_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of("cancel")
    victim = bench.run(1, user=2000, gres={"gpu": 4})
    urgent = bench.submit(1, qos="high", gres={"gpu": 1})
    assert preempts(bench) == [(victim, "cancel", urgent)]
    real, cursed = bench.selection.job_test, Refusal(PLUGIN, "cursed")
    monkeypatch.setattr(bench.selection, "job_test", lambda job, *asked, **more: (
        cursed if job is urgent else real(job, *asked, **more)
    ))  # fmt: skip
    bench.scheduler.changed()
    assert bench.look() == []
    assert bench.reason(urgent) == "JobLaunchFailure"
    bench.end(victim, "PREEMPTED")
    other = bench.submit(1, user=3000, gres={"gpu": 4})
    assert bench.look() == [other]


def test_who_cannot_be_suspended_for_now_keeps_nobody_from_other_room() -> None:
    """In its prolog, or before its first step: it was waited for until it ended, also where all else was free."""
    bench = bench_of("suspend")
    other = bench.run(4, user=2000)
    bench.at += 1
    young = bench.run(4)
    urgent = bench.submit(4, qos="high")
    assert preempts(bench) == [(young, "suspend", urgent)]
    bench.scheduler.stays(young, bench.at)
    assert preempts(bench) == [(other, "suspend", urgent)]
    bench.scheduler.stays(other, bench.at)
    assert preempts(bench) == []
    assert bench.reason(urgent) == "Resources"
    bench.end(other)
    assert bench.look() == [urgent]


def test_who_could_not_be_suspended_is_asked_again_each_time_later() -> None:
    bench = bench_of("suspend")
    job = bench.run(8)
    urgent = bench.submit(4, qos="high")
    assert preempts(bench) == [(job, "suspend", urgent)]
    pauses = []
    for _ in range(5):
        bench.scheduler.stays(job, bench.at)
        assert preempts(bench) == []
        at = bench.scheduler.next_time(bench.at)
        assert at is not None
        pauses.append(at - bench.at)
        bench.at = at
        assert preempts(bench) == [(job, "suspend", urgent)]
    assert pauses == [5, 10, 20, 40, 80]
    assert bench.scheduler.suspend(job, bench.at) == ""
    assert bench.look() == [urgent]
    bench.end(urgent)
    assert resumed(bench) == [job]
    bench.scheduler.stays(job, bench.at)
    assert preempts_of(bench, job), "it was not to make room"


def test_nobody_makes_room_for_who_has_left_the_line_between_two_slices() -> None:
    bench = bench_of("cancel")
    victims = [bench.run(2) for _ in range(4)]
    urgent = bench.submit(8, qos="high")
    decisions = bench.scheduler.schedule(bench.at)
    first = next(one for one in decisions if isinstance(one, Preempt))
    bench.scheduler.cancel(urgent, bench.at)
    assert not [one for one in decisions if isinstance(one, Preempt)]
    assert [one.preempted_by for one in victims if one is not first.job] == [0, 0, 0]


def test_who_ends_between_two_slices_is_not_told_to_make_room() -> None:
    bench = bench_of("cancel")
    victims = [bench.run(2) for _ in range(4)]
    urgent = bench.submit(8, qos="high")
    decisions = bench.scheduler.schedule(bench.at)
    told = [next(one.job for one in decisions if isinstance(one, Preempt))]
    ended, ends, goes = (one for one in victims if one not in told)
    bench.end(ended)
    bench.scheduler.ending(ends, bench.at)
    told += [one.job for one in decisions if isinstance(one, Preempt)]
    assert told == [told[0], goes]
    for one in (*told, ends):
        bench.end(one)
    assert bench.look() == [urgent]
