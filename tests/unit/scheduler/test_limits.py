"""What one user may have at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodectl.model.states import RUNNING
from nodectl.scheduler.decisions import NotAdmitted, Preempt
from nodectl.scheduler.policy import qos_lines
from nodectl.selection.records import JobRecord
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


def _of_whole_cores(*lines: str) -> tuple[Bench, JobRecord, JobRecord]:
    """Cores of two threads. A user who may have 5 CPUs has 4, another one the core and the memory that are missed."""
    bench = Bench(policy(*lines, cpus=5), nodes="1s:4c:2t,mem=8G")
    return bench, bench.run(4, limit=50_000), bench.run(1, user=2000, limit=1000, pn_min_memory=6000)


def test_who_would_be_given_more_than_its_user_may_have_is_not_first_in_line() -> None:
    bench, own, _ = _of_whole_cores()
    limited = bench.submit(1, limit=100, pn_min_memory=7000)  # a whole core: 6 CPUs
    first = bench.submit(2, user=3000, limit=100, pn_min_memory=7500)
    assert not bench.look()
    said = bench.scheduler.explain(limited, bench.at)
    assert (said.reason, said.for_whom) == ("QOSMaxCpuPerUserLimit", (f"job {own.job_id} of u1000",))
    assert bench.reason(first) == "Resources"
    assert bench.scheduler.expected_start(limited, bench.at) is None
    assert bench.scheduler.expected_start(first, bench.at) == bench.at + 1000
    bench.end(own)
    assert bench.scheduler.line(bench.at)[0] is limited
    assert not bench.look()
    assert [bench.reason(limited), bench.reason(first)] == ["Resources", "Priority"]


def test_on_a_full_machine_too_who_would_be_given_too_much_is_not_first() -> None:
    bench = Bench(policy(cpus=5), nodes="1s:4c:2t,mem=8G")
    bench.run(4, limit=50_000)
    bench.run(4, user=2000, limit=1000)
    limited, first = bench.submit(1), bench.submit(1, user=3000)
    assert not bench.look()
    assert bench.scheduler.expected_start(limited, bench.at) is None
    assert bench.scheduler.expected_start(first, bench.at) == bench.at + 1000
    for job in bench.scheduler.line(bench.at):
        assert job.state_reason == ("QOSMaxCpuPerUserLimit" if job is limited else "Resources")
        assert bench.reason(job) == job.state_reason


def test_nothing_is_kept_for_who_would_be_given_too_much() -> None:
    bench, _, _ = _of_whole_cores()
    bench.submit(1, limit=100, pn_min_memory=7000)
    assert not bench.look()
    long = bench.submit(2, user=3000, limit=90_000, pn_min_memory=2000)
    assert bench.look() == [long]


def test_who_has_room_and_would_be_given_too_much_is_told_so() -> None:
    bench = Bench(policy(cpus=5), nodes="1s:4c:2t,mem=8G")
    bench.run(4)
    limited = bench.submit(1)
    assert not bench.look()
    assert bench.reason(limited) == "QOSMaxCpuPerUserLimit"
    assert bench.scheduler.line(bench.at)[0].state_reason == "QOSMaxCpuPerUserLimit"


def test_nobody_makes_room_for_who_would_be_given_too_much() -> None:
    bench, _, other = _of_whole_cores("Name=normal PreemptMode=cancel", "Name=high Preempt=normal Priority=10")
    limited = bench.submit(1, qos="high", pn_min_memory=7000)
    assert not bench.look()
    assert [one for one in bench.decided if isinstance(one, Preempt)] == []
    assert other.job_state == RUNNING
    assert bench.reason(limited) == "QOSMaxCpuPerUserLimit"


def test_who_waits_too_long_and_would_be_given_too_much_closes_nothing_to_others() -> None:
    """All others make room for an urgent job, so that no plugin can foresee a start."""
    rules = replace(
        policy("Name=normal PreemptMode=cancel", "Name=high Preempt=normal Priority=10", cpus=5), max_wait=100
    )
    bench = Bench(rules, nodes="1s:4c:2t,mem=8G")
    bench.run(4, limit=50_000)
    bench.run(4, user=2000, limit=50_000)
    limited = bench.submit(1, limit=100)
    bench.look()
    bench.submit(8, user=0, qos="high", limit=50_000)
    bench.look()
    assert len([one for one in bench.decided if isinstance(one, Preempt)]) == 2
    bench.at += 200
    bench.scheduler.changed()
    bench.look()
    assert bench.reason(limited) == "QOSMaxCpuPerUserLimit"


def test_a_user_who_is_first_in_line_is_not_delayed_by_their_own_other_jobs() -> None:
    bench = Bench(policy(cpus=5))
    bench.run(5, user=2000, limit=1000)
    first = bench.submit(4, limit=100)
    assert not bench.look()
    small, large, short = bench.submit(1, limit=90_000), bench.submit(2, limit=90_000), bench.submit(2, limit=500)
    assert bench.look() == [small]
    assert [bench.reason(job) for job in (first, large, short)] == ["Resources", "Priority", "Priority"]
    assert bench.scheduler.try_start(bench.job(2, limit=500), bench.at) == "Resources"
    assert bench.scheduler.explain(short, bench.at).what_would_help == (), "no time limit would help"
    bench.at += 1000
    bench.end(bench.scheduler.jobs[1])
    assert bench.look() == [first]


def test_whole_cores_of_a_users_other_jobs_do_not_delay_who_is_first_in_line() -> None:
    bench = Bench(policy(cpus=7), nodes="1s:8c:2t")
    bench.run(12, user=0, limit=1000)
    first, own = bench.submit(6, limit=100), bench.submit(1, limit=100)
    assert not bench.look()
    assert [bench.reason(job) for job in (first, own)] == ["Resources", "Priority"]


def _of_the_urgent(cpus: int) -> tuple[Bench, JobRecord, JobRecord]:
    """A user may have so many CPUs; the job that makes room for one of theirs with 5, and that one."""
    bench = Bench(policy("Name=normal PreemptMode=cancel", "Name=high Preempt=normal Priority=10", cpus=cpus))
    victim = bench.run(4, user=2000)
    urgent = bench.submit(5, qos="high")
    assert not bench.look()
    assert victim.preempted_by == urgent.job_id
    return bench, victim, urgent


def test_what_others_give_up_is_not_lost_because_its_user_starts_another_job_meanwhile() -> None:
    bench, victim, urgent = _of_the_urgent(7)
    bench.scheduler.ending(victim, bench.at)
    own, small = bench.submit(3, qos="high", nice=-100), bench.submit(2, qos="high")
    assert bench.look() == [small], "both may be had"
    assert bench.reason(own) == "QOSMaxCpuPerUserLimit"
    assert bench.scheduler.try_start(bench.job(1), bench.at) == "QOSMaxCpuPerUserLimit"
    bench.end(victim, "PREEMPTED")
    assert bench.look() == [urgent]
    bench.end(small)
    bench.end(urgent)
    assert bench.look() == [own]


def test_what_a_user_is_promised_counts_no_more_when_nobody_makes_room_for_it() -> None:
    bench, _, urgent = _of_the_urgent(5)
    own = bench.submit(1)
    assert not bench.look()
    assert bench.reason(own) == "QOSMaxCpuPerUserLimit"
    bench.scheduler.cancel(urgent, bench.at)
    assert bench.look() == [own]


def test_nobody_makes_room_for_two_of_whom_their_user_may_have_one() -> None:
    """The second would wait for the end of the first, and what was ended for it would be lost."""
    bench = Bench(policy("Name=normal PreemptMode=cancel", "Name=high Preempt=normal Priority=10", cpus=4))
    bench.run(3, user=2000), bench.run(3, user=3000), bench.run(2, user=0, qos="high")
    first, second = bench.submit(3, qos="high"), bench.submit(3, qos="high")
    assert not bench.look()
    (gone,) = [one for one in bench.decided if isinstance(one, Preempt)]
    assert gone.for_job is first
    assert bench.reason(second) == "QOSMaxCpuPerUserLimit"
    bench.end(gone.job, "PREEMPTED")
    assert bench.look() == [first]


def test_who_is_like_another_of_its_user_for_whom_others_make_room_does_not_keep_that_one_back() -> None:
    """By whole cores, which are known only when the plugin was asked."""
    rules = policy("Name=normal PreemptMode=cancel", "Name=high Preempt=normal Priority=10", cpus=3)
    bench = Bench(rules, nodes="1s:4c:2t,mem=8G")
    victim = bench.run(8, user=0)
    first = bench.submit(1, qos="high")
    assert not bench.look()
    second = bench.submit(1, qos="high", nice=-100)
    assert not bench.look()
    bench.end(victim, "PREEMPTED")
    assert bench.look() == [first]
    assert bench.reason(second) == "QOSMaxCpuPerUserLimit"


def test_many_who_would_be_given_too_much_are_one_question() -> None:
    bench, _, other = _of_whole_cores()
    for _ in range(200):
        bench.submit(1, limit=100, pn_min_memory=7000)
    last = bench.submit(1, user=3000, limit=100)
    before = bench.scheduler._backfill.tests
    assert bench.look() == [last]
    assert bench.scheduler._backfill.tests - before <= 4
    bench.end(other)
    before = bench.scheduler._backfill.tests
    assert not bench.look()
    assert bench.scheduler._backfill.tests - before <= 2
