"""The order of those who wait: kept, not sorted anew, and still what sorting would give."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nodectl.scheduler.agenda import Agenda
from nodectl.scheduler.fair_share import FairShare
from nodectl.scheduler.line import Line
from nodectl.scheduler.policy import Policy, Qos
from nodectl.scheduler.priority import Priority
from nodectl.selection.records import JobDetails, JobRecord

NOW = 1_000_000.0


def line_of(policy: Policy, rows: list[tuple[int, float, float]] | None = None) -> Line:
    return Line(policy, Priority(policy, 64), FairShare(policy.priority_decay_half_life, rows or []))


def job(number: int, user: int = 1, *, since: float = NOW, cpus: int = 1, **fields: int) -> JobRecord:
    return JobRecord(number, user, submit_time=since, eligible_time=since, details=JobDetails(min_cpus=cpus), **fields)  # type: ignore[arg-type]


def order(line: Line, now: float) -> list[int]:
    return [one.job_id for one in line.in_order(now)]


_JOBS = st.lists(
    st.tuples(
        st.integers(1, 4), st.integers(0, 2000), st.integers(1, 64), st.integers(-50, 50),
        st.sampled_from([0, 0, 0, 0, 700]),
    ),
    max_size=30,
)  # fmt: skip


@given(_JOBS, st.integers(0, 5000), st.integers(0, 3), st.integers(0, 900))
def test_the_order_is_that_of_the_points_at_any_time(
    asked: list[tuple[int, int, int, int, int]], later: int, gone: int, age: int
) -> None:
    policy = Policy(
        priority_weight_age=500, priority_max_age=1000, priority_weight_job_size=100, priority_weight_fairshare=300,
        max_wait=0,
    )  # fmt: skip
    line = line_of(policy, [(1, 5000.0, NOW), (2, 100.0, NOW)])
    jobs = [
        job(number, user, since=NOW + since, cpus=cpus, nice=nice, direct_priority=fixed)
        for number, (user, since, cpus, nice, fixed) in enumerate(asked, 1)
    ]
    for one in jobs:
        line.add(one, max(NOW + age, one.eligible_time))
    for one in jobs[:gone]:
        line.remove(one, NOW + 2000)
    now = NOW + 2000 + later
    points = line.all_points(jobs[gone:], now)
    found = list(line.in_order(now))
    assert {one.job_id for one in found} == {one.job_id for one in jobs[gone:]}
    by_job = {one.job_id: at for one, at in zip(jobs[gone:], points, strict=True)}
    for before, after in pairwise(found):
        assert by_job[before.job_id] >= by_job[after.job_id] - 1e-6


def test_a_priority_is_the_sum_of_its_points() -> None:
    policy = Policy(priority_weight_job_size=100, qos={"high": Qos("high", priority=4), "low": Qos("low", priority=1)})
    line = line_of(policy, [(1, 5000.0, NOW), (2, 100.0, NOW)])
    jobs = [replace(job(1, cpus=16, nice=7), qos="low"), job(2, 2, direct_priority=900)]
    found, fixed = line.parts(jobs, NOW + 500)
    assert (found.job_size, found.nice, found.qos) == (25.0, 7, 2500.0)
    total = found.age + found.fairshare + found.job_size + found.qos - found.nice
    assert [total, fixed.direct] == line.all_points(jobs, NOW + 500)


def test_equals_stand_in_the_order_of_submission() -> None:
    line = line_of(Policy(max_wait=0))
    for number in (3, 1, 2):
        line.add(job(number), NOW)
    assert order(line, NOW) == [1, 2, 3]


def test_who_has_waited_long_enough_goes_before_all_others() -> None:
    policy = Policy(max_wait=100, priority_weight_job_size=10_000)
    line = line_of(policy)
    line.add(job(1, 1), NOW)
    line.add(job(2, 2, since=NOW + 50, cpus=64), NOW + 50)
    assert order(line, NOW + 99) == [2, 1]
    assert order(line, NOW + 100) == [1, 2]


def test_a_user_with_many_old_jobs_does_not_shut_others_out() -> None:
    line = line_of(Policy(max_wait=100, priority_weight_job_size=10_000))
    old = [job(number, 1) for number in range(1, 50)]
    for one in old:
        line.add(one, NOW)
    line.add(job(99, 2, since=NOW + 100, cpus=64), NOW + 100)
    assert order(line, NOW + 150)[:3] == [1, 99, 2]
    line.remove(old[0], NOW + 150, started=True)
    assert order(line, NOW + 151)[0] == 99
    assert order(line, NOW + 250)[:3] == [99, 2, 3]


def test_turns_come_in_the_order_of_waiting() -> None:
    line = line_of(Policy(max_wait=100))
    for number, user in ((1, 1), (2, 2), (3, 3)):
        line.add(job(number, user, since=NOW + number), NOW + number)
    line.add(job(4, 4, since=NOW + 4, direct_priority=1_000_000), NOW + 4)
    assert order(line, NOW + 102.5) == [1, 2, 4, 3]
    assert order(line, NOW + 1000) == [1, 2, 3, 4]


def test_nobody_counts_as_young_for_a_clock_that_was_set_back() -> None:
    line = line_of(Policy(max_wait=100))
    line.add(job(1), NOW)
    assert line.points(job(2, since=NOW), NOW - 500) == line.points(job(2, since=NOW), NOW)
    assert order(line, NOW - 10_000) == [1]


def test_what_left_long_ago_leaves_nothing_behind() -> None:
    line = line_of(Policy())
    for number in range(1, 20_000):
        one = job(number)
        line.add(one, NOW)
        line.remove(one, NOW)
    assert len(line) == 0
    assert len(line._changes) < 10_000


def test_fair_share_changes_the_order_between_users() -> None:
    policy = replace(Policy(), max_wait=0)
    line = line_of(policy, [(1, 10_000.0, NOW)])
    line.add(job(1, 1), NOW)
    line.add(job(2, 2, since=NOW + 1), NOW + 1)
    assert order(line, NOW + 2) == [2, 1]


def test_a_job_that_joins_again_and_again_leaves_few_notes() -> None:
    """A user who holds and releases a job for hours must not make each later call slower."""
    policy = Policy(max_wait=3600)
    line = line_of(policy)
    again, other = job(1), job(2, user=2)
    line.add(other, NOW)
    for turn in range(5000):
        again.eligible_time = NOW + turn * 0.1
        line.add(again, again.eligible_time)
        line.remove(again, again.eligible_time)
    line.add(again, again.eligible_time)
    assert len(line._changes) < 1100
    assert len(line._users[1].waiting) < 1100
    late = again.eligible_time + policy.max_wait
    assert order(line, late) == [2, 1]
    assert line.is_its_turn(other)
    assert line.is_its_turn(again)


def test_the_notes_of_a_long_agenda_are_gone_through_seldom() -> None:
    class Time(float):
        hashed = 0

        def __hash__(self) -> int:
            Time.hashed += 1
            return super().__hash__()

    agenda = Agenda()
    for number in range(10_000):
        agenda.note(Time(NOW + number * 7919 % 10_007), number)
    assert Time.hashed < 40_000
    for _ in range(50_000):
        agenda.note(NOW, 1)
    assert len(agenda._heap) < 40_000
    assert sorted(agenda.due(NOW + 20_000)) == list(range(10_000))
