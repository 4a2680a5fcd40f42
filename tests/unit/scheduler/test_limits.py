"""What one user may have at a time."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.policy import qos_lines
from unit.scheduler.bench import Bench, policy


@pytest.mark.parametrize(
    ("limit", "job", "reason"),
    [({"jobs": 2}, {}, "QOSMaxJobsPerUserLimit"), ({"cpus": 2}, {}, "QOSMaxCpuPerUserLimit"),
     ({"memory": 100}, {"pn_min_memory": 50}, "QOSMaxMemoryPerUser"),
     ({"devices": 2}, {"gres": {"gpu": 1}}, "QOSMaxGRESPerUser")],
)  # fmt: skip
def test_jobs_beyond_a_limit_wait_and_those_of_others_pass_by(
    limit: dict[str, int], job: dict[str, Any], reason: str
) -> None:
    bench = Bench(policy(**limit))
    one, two, three = (bench.submit(**job) for _ in range(3))
    other = bench.submit(user=2000, **job)
    assert bench.look() == [one, two, other]
    said = bench.scheduler.explain(three, bench.at)
    assert said.reason == reason
    assert said.for_whom == ("job 1 of u1000", "job 2 of u1000")
    again = bench.job(**job)
    assert bench.scheduler.try_start(again, bench.at) == reason
    assert again.job_id not in bench.scheduler.jobs
    bench.end(two)
    assert bench.look() == [three]


def test_root_has_no_limits() -> None:
    bench = Bench(policy(jobs=1, submitted=1))
    assert len([bench.run(user=0) for _ in range(3)]) == 3


def test_what_a_user_may_never_have_is_refused_at_once() -> None:
    bench = Bench(policy(cpus=4))
    with pytest.raises(NotAdmitted, match="5 CPUs, 4 is the most"):
        bench.submit(5)
    with pytest.raises(NotAdmitted, match="QOSMaxCpuPerUserLimit"):
        bench.scheduler.try_start(bench.job(5), bench.at)


def test_whole_cores_count_whole() -> None:
    bench = Bench(policy(cpus=1), nodes="1s:4c:2t")
    with pytest.raises(NotAdmitted, match="would be given 2 CPUs, 1 is the most"):
        bench.submit(1)


def test_ten_thousand_submissions_of_one_user_end_at_the_limit() -> None:
    bench = Bench(policy(submitted=10))
    jobs = [bench.submit() for _ in range(10)]
    with pytest.raises(NotAdmitted, match="10 jobs waiting or running, 10 is the most"):
        bench.submit()
    bench.submit(user=2000)
    bench.scheduler.cancel(jobs[0], bench.at)
    bench.submit()


def test_a_quality_of_service_has_limits_of_its_own() -> None:
    bench = Bench(policy("Name=small MaxCpusPerUser=1", "Name=free MaxCpusPerUser=8", cpus=2))
    small = [bench.submit(qos="small") for _ in range(2)]
    free = [bench.submit(3, qos="free")]
    assert bench.look() == [small[0], *free]
    assert bench.reason(small[1]) == "QOSMaxCpuPerUserLimit"


def test_a_quality_of_service_is_for_its_users() -> None:
    bench = Bench(policy("Name=staff Users=u2000"))
    with pytest.raises(NotAdmitted, match="Invalid qos"):
        bench.submit(qos="staff")
    with pytest.raises(NotAdmitted, match="Invalid qos"):
        bench.submit(qos="none")
    bench.submit(qos="staff", user=2000)


def test_time_limits_have_a_bound_and_a_default() -> None:
    bench = Bench(policy("Name=long MaxTime=1000", max_time=100, default_time=50))
    assert bench.submit(limit=0).time_limit == 50
    with pytest.raises(NotAdmitted, match="00:01:40 is the longest"):
        bench.submit(limit=101)
    assert bench.submit(limit=900, qos="long").time_limit == 900


def test_what_was_counted_is_counted_back() -> None:
    bench = Bench(policy(jobs=3, cpus=7, submitted=5))
    for round_ in range(20):
        jobs = [bench.submit(2) for _ in range(4)]
        started = bench.look()
        assert len(started) == 3, round_
        bench.scheduler.requeue(started[0], bench.at)
        for job in jobs:
            bench.end(job)
    assert bench.scheduler._book.accounts._use == {}
    assert bench.scheduler._book.accounts._charged == {}


def test_a_job_that_is_queued_again_counts_no_longer() -> None:
    bench = Bench(policy(jobs=1))
    job, other = bench.run(nice=5), bench.submit()
    assert bench.look() == []
    bench.scheduler.requeue(job, bench.at)
    assert bench.look() == [other]


@pytest.mark.parametrize(
    "line",
    ["Priority=1", "Name=a Priority=x", "Name=a Preempt=b", "Name=a Preempt=a", "Name=a PreemptMode=stop",
     "Name=a Colour=1", "Name=a Name=b", "Name=a Priority"],
)  # fmt: skip
def test_lines_that_mean_nothing_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="has "):
        qos_lines((line,))
