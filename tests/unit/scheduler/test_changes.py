"""What users and administrators may change, hold and release."""

from __future__ import annotations

from typing import Any

import pytest
from bitarray import bitarray

from nodectl.scheduler.decisions import End, NotAdmitted
from nodectl.selection.records import JobDetails
from unit.scheduler.bench import Bench, policy


def full() -> Bench:
    bench = Bench()
    bench.run(8)
    return bench


@pytest.mark.parametrize(
    "changed",
    [{"priority": 5}, {"nice": -1}, {"time_limit": 3601}, {"time_limit": 0}, {"cpus": 3}, {"ntasks": 9}, {"ntasks": 0},
     {"mem": 9000}, {"mem": -1}, {"qos": "none"}, {"reservation": "none"}, {"dependency": "afterok:99"},
     {"deadline": 5.0}, {"dependency": "x"}],
)  # fmt: skip
def test_what_a_user_may_not_change_stays_as_it_is(changed: dict[str, Any]) -> None:
    bench = full()
    job = bench.submit(2)
    before = job.as_json()
    with pytest.raises(NotAdmitted):
        bench.scheduler.update(job, {"comment": "mine", **changed}, bench.at)
    assert job.as_json() == before


def test_a_user_changes_what_their_job_asks_for() -> None:
    bench = full()
    job = bench.submit(8)
    changed = {"time_limit": 60, "nice": 5, "name": "n", "comment": "c", "ntasks": 2, "cpus_per_task": 2, "mem": 100}
    bench.scheduler.update(job, changed, bench.at)
    details = job.details
    assert (job.time_limit, job.nice, job.name, job.comment) == (60, 5, "n", "c")
    assert (details.num_tasks, details.cpus_per_task, details.min_cpus, details.pn_min_memory) == (2, 2, 4, 100)


def test_an_administrator_raises_time_and_priority() -> None:
    bench = full()
    first, second = bench.submit(8), bench.submit(8)
    bench.scheduler.update(second, {"time_limit": 9999, "priority": 100_000, "nice": -5}, bench.at, is_admin=True)
    assert bench.scheduler.line(bench.at) == [second, first]
    assert second.priority == 100_000


def test_a_running_job_has_its_time_changed_and_nothing_else() -> None:
    bench = Bench()
    job = bench.run(8, limit=1000)
    short = bench.submit(8)
    bench.scheduler.update(job, {"time_limit": 500}, bench.at)
    assert bench.scheduler.expected_start(short, bench.at) == bench.at + 500
    for changed in ({"ntasks": 1}, {"begin": 5.0}, {"nice": 1}, {"time_limit": 501}):
        with pytest.raises(NotAdmitted):
            bench.scheduler.update(job, changed, bench.at)
    bench.scheduler.update(job, {"time_limit": 2000}, bench.at, is_admin=True)
    assert bench.scheduler.expected_start(short, bench.at) == bench.at + 2000


def test_what_an_administrator_holds_no_user_releases() -> None:
    bench = Bench()
    job = bench.submit()
    bench.scheduler.hold(job, "user", bench.at)
    assert (bench.look(), bench.reason(job)) == ([], "JobHeldUser")
    bench.scheduler.hold(job, "admin", bench.at)
    bench.scheduler.hold(job, "user", bench.at)
    assert bench.reason(job) == "JobHeldAdmin"
    with pytest.raises(NotAdmitted, match="administrator holds"):
        bench.scheduler.release(job, bench.at)
    bench.scheduler.release(job, bench.at, is_admin=True)
    assert bench.look() == [job]
    with pytest.raises(NotAdmitted, match="no longer pending"):
        bench.scheduler.hold(job, "user", bench.at)


def test_a_held_job_gathers_no_age() -> None:
    bench = full()
    job = bench.submit(8, held="user")
    assert job.eligible_time == 0
    bench.at += 1000
    bench.scheduler.release(job, bench.at)
    assert job.eligible_time == bench.at


def test_a_job_begins_when_it_is_to_and_not_before() -> None:
    bench = Bench()
    job = bench.submit(begin_time=bench.at + 100)
    assert (bench.look(), bench.reason(job)) == ([], "BeginTime")
    assert bench.scheduler.next_time(bench.at) == bench.at + 100
    assert bench.scheduler.expected_start(job, bench.at) == bench.at + 100
    assert bench.scheduler.try_start(bench.job(begin_time=bench.at + 1), bench.at) == "BeginTime"
    bench.scheduler.update(job, {"begin": bench.at + 50}, bench.at)
    assert bench.look(49) == []
    assert bench.look(1) == [job]


def test_a_job_that_cannot_meet_its_deadline_is_ended() -> None:
    bench = full()
    with pytest.raises(NotAdmitted, match="deadline"):
        bench.submit(limit=100, deadline=bench.at + 99)
    job = bench.submit(limit=100, deadline=bench.at + 300)
    bench.look()
    assert bench.scheduler.next_time(bench.at) == bench.at + 200
    assert bench.look(200) == []
    assert bench.decided[-1] == End(job, "DEADLINE", "DeadLine")
    assert job.job_id not in bench.scheduler.jobs


def test_a_job_without_a_limit_ends_at_its_deadline() -> None:
    bench = Bench()
    job = bench.submit(limit=0, deadline=bench.at + 300)
    assert bench.look(100) == [job]
    assert job.time_limit == 200


def test_a_held_job_misses_its_deadline_too() -> None:
    bench = Bench()
    job = bench.submit(limit=100, deadline=bench.at + 300, held="user")
    bench.look(300)
    assert bench.decided == [End(job, "DEADLINE", "DeadLine")]


def test_a_job_of_more_tasks_is_tested_anew() -> None:
    bench = Bench()
    bench.run(7)
    job = bench.submit(8)
    assert bench.look() == []
    bench.scheduler.update(job, {"ntasks": 1}, bench.at)
    assert bench.look() == [job]


def test_the_quality_of_service_can_be_changed_with_its_counts() -> None:
    bench = Bench(policy("Name=small MaxJobsPerUser=1"))
    one, two = bench.submit(qos="small"), bench.submit(qos="small")
    assert bench.look() == [one]
    bench.scheduler.update(two, {"qos": "normal"}, bench.at)
    assert bench.look() == [two]
    third = bench.submit(qos="small")
    bench.end(one)
    assert bench.look() == [third]


def test_a_queued_again_job_waits_and_keeps_its_age() -> None:
    bench = Bench()
    job = bench.run(8)
    since = job.eligible_time
    bench.at += 500
    bench.scheduler.requeue(job, bench.at)
    assert (job.restart_cnt, job.eligible_time, job.job_resrcs) == (1, since, None)
    assert bench.look() == [job]
    bench.end(job)
    with pytest.raises(NotAdmitted, match="not running"):
        bench.scheduler.requeue(job, bench.at)


def test_a_job_that_runs_towards_its_deadline_can_still_be_renamed_and_shortened() -> None:
    bench = Bench()
    job = bench.run(1, limit=100, deadline=bench.at + 120)
    bench.at += 60
    bench.scheduler.update(job, {"name": "n", "comment": "c"}, bench.at)
    bench.scheduler.update(job, {"time_limit": 90}, bench.at)
    assert (job.name, job.comment, job.time_limit) == ("n", "c", 90)


def test_a_job_that_was_given_more_time_than_users_may_have_can_still_be_renamed() -> None:
    bench = Bench(policy(max_time=3600))
    job = bench.run(1, limit=3600)
    bench.scheduler.update(job, {"time_limit": 7200}, bench.at, is_admin=True)
    bench.scheduler.update(job, {"name": "n"}, bench.at)
    assert (job.name, job.time_limit) == ("n", 7200)


@pytest.mark.parametrize("changed", [{"ntasks": 1}, {"demand": JobDetails(layout={"ntasks": "1"})}])
def test_a_job_keeps_the_fewest_cpus_that_its_user_named(changed: dict[str, Any]) -> None:
    """An option of the job, which no later description of its first step holds."""
    bench = full()
    job = bench.submit(2, least_cpus=6)
    bench.scheduler.update(job, changed, bench.at)
    assert (job.details.num_tasks, job.details.min_cpus) == (1, 6)


def test_tasks_that_share_cpus_ask_for_no_more_of_them_after_a_change() -> None:
    bench = full()
    job = bench.submit(1, overcommit=True)
    bench.scheduler.update(job, {"ntasks": 20}, bench.at)
    assert (job.details.num_tasks, job.details.min_cpus) == (20, 1)


def test_nodes_of_a_new_description_take_the_place_of_the_old_ones() -> None:
    bench = Bench(nodes="3*1s:8c:1t")
    blocking = [bench.run(8) for _ in range(3)]
    assert len(blocking) == 3
    job = bench.submit(req_nodes=("n1",), share_res=True)
    bench.look()
    demand = JobDetails(req_nodes=("n2",), exc_nodes=("n3",), share_res=False, layout={"ntasks": "1"})
    bench.scheduler.update(job, {"demand": demand}, bench.at)
    assert (job.details.req_nodes, job.details.exc_nodes, job.details.share_res) == (("n2",), ("n3",), False)
    for one in blocking:
        bench.end(one)
    assert bench.look() == [job]
    assert job.job_resrcs is not None
    assert [bench.selection.nodes[at].name for at in job.job_resrcs.node_bitmap.search(bitarray("1"))] == ["n2"]
