"""Backfill: others start around the first in line and never delay it, and nobody waits for ever."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.model.states import PENDING, RUNNING
from nodectl.scheduler.policy import Policy, qos_lines
from nodectl.selection.records import JobRecord
from unit.scheduler.bench import PLAIN, Bench, policy


def test_a_short_job_passes_by_and_a_long_one_does_not() -> None:
    bench = Bench()
    bench.run(5, limit=1000)
    first = bench.submit(8)
    short, long = bench.submit(3, limit=1000), bench.submit(3, limit=1001)
    assert bench.look() == [short]
    assert bench.reason(first) == "Resources"
    assert bench.reason(long) == "Priority"
    assert bench.scheduler.expected_start(first, bench.at) == bench.at + 1000


def test_a_long_job_starts_on_cores_that_the_first_in_line_does_not_need() -> None:
    bench = Bench()
    bench.run(4, limit=1000)
    bench.run(2, limit=5000)
    bench.submit(5, limit=100)
    long = bench.submit(1, limit=100_000)
    assert bench.look() == [long]


def test_memory_and_devices_that_the_first_in_line_needs_are_left_alone() -> None:
    bench = Bench()
    bench.run(1, limit=1000, pn_min_memory=6000)
    bench.submit(1, pn_min_memory=7000)
    assert not bench.look()
    greedy, short, modest = (
        bench.submit(1, limit=2000, pn_min_memory=2000),
        bench.submit(1, limit=900, pn_min_memory=2000),
        bench.submit(1, limit=2000, pn_min_memory=100),
    )
    assert bench.look() == [short, modest]
    assert bench.reason(greedy) == "Priority"

    bench = Bench()
    bench.run(1, limit=1000, gres={"gpu": 3})
    bench.submit(1, gres={"gpu": 4})
    assert not bench.look()
    long, short = bench.submit(1, limit=2000, gres={"gpu": 1}), bench.submit(1, limit=500, gres={"gpu": 1})
    assert bench.look() == [short]
    assert bench.reason(long) == "Priority"


def test_parts_of_devices_that_are_promised_to_the_first_in_line_are_not_given_away() -> None:
    bench = Bench(nodes="1s:8c:1t,mem=8G,gpu=1,shard=4,gpumem=4000")
    bench.run(1, limit=1000, gres={"shard": 2})
    first = bench.submit(1, gres={"shard": 3})
    assert not bench.look()
    why = bench.scheduler.explain(first, bench.at)
    assert (why.reason, why.expected_start) == ("Resources", bench.at + 1000)
    assert (
        why.words == "it is the next to start: 3 shards of a GPU asked for: no GPU that jobs may share has so much free"
    )
    long = bench.submit(1, limit=2000, gres={"gpumem": 1500})
    short, beside = bench.submit(1, limit=500, gres={"shard": 1}), bench.submit(1, limit=2000, gres={"gpumem": 1000})
    assert bench.look() == [short, beside], "1000 MiB are no one's when three shards are the first one's"
    assert bench.reason(long) == "Priority"
    assert bench.look(1000.0) == []


def test_a_new_job_passes_by_at_once_by_the_same_rule() -> None:
    bench = Bench()
    bench.run(6, limit=1000)
    bench.submit(8)
    assert not bench.look()
    assert bench.scheduler.try_start(bench.job(1, limit=2000), bench.at) == "Resources"
    job = bench.job(1, limit=1000)
    assert bench.scheduler.try_start(job, bench.at) == ""
    assert bench.scheduler.jobs[job.job_id] is job
    assert job.job_state == RUNNING


def test_a_new_job_does_not_take_what_was_freed_for_others() -> None:
    bench = Bench()
    running = bench.run(8)
    waiting = bench.submit(8)
    assert not bench.look()
    bench.end(running)
    assert bench.scheduler.try_start(bench.job(1), bench.at) == "Priority"
    assert bench.look() == [waiting]


def test_a_new_job_that_found_no_room_finds_it_as_soon_as_it_is_free() -> None:
    bench = Bench()
    running = bench.run(8)
    assert bench.scheduler.try_start(bench.job(8, overcommit=True), bench.at) == "Resources"
    bench.end(running)
    assert bench.scheduler.try_start(bench.job(8, overcommit=True), bench.at) == ""


def test_a_more_urgent_job_becomes_the_first_in_line() -> None:
    bench = Bench(policy("Name=high Priority=10"))
    bench.run(6, limit=1000)
    usual = bench.submit(7)
    assert not bench.look()
    urgent = bench.submit(8, qos="high")
    assert not bench.look()
    assert [bench.reason(usual), bench.reason(urgent)] == ["Priority", "Resources"]


@dataclass
class _Play:
    """A machine, its jobs, and time that goes from one event to the next."""

    bench: Bench
    ends: list[tuple[float, int, JobRecord]] = field(default_factory=list)
    promised: dict[int, float] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)

    def begin(self, jobs: list[JobRecord]) -> None:
        for job in jobs:
            promise = self.promised.pop(job.job_id, None)
            assert promise is None or self.bench.at <= promise + 1e-6, f"job {job.job_id} was delayed"
            heapq.heappush(self.ends, (self.bench.at + self.runs[job.job_id], job.job_id, job))
        self.nothing_is_given_twice()

    def nothing_is_given_twice(self) -> None:
        cores: Counter[int] = Counter()
        memory, gpus = 0, Counter[str]()
        for job in self.bench.scheduler.jobs.values():
            if job.job_resrcs is not None:
                cores.update(job.job_resrcs.core_bitmap.search(1))
                memory += sum(job.job_resrcs.memory.values())
                gpus.update(key for keys in job.job_resrcs.gres.values() for key in keys)
        assert not cores or max(cores.values()) == 1
        assert not gpus or max(gpus.values()) == 1
        assert memory <= 8192

    def look(self) -> None:
        self.begin(self.bench.look())
        line = self.bench.scheduler.line(self.bench.at)
        if line and line[0].job_id not in self.promised:
            expected = self.bench.scheduler.expected_start(line[0], self.bench.at)
            assert expected is not None
            self.promised = {line[0].job_id: expected}

    def until(self, moment: float) -> None:
        """Everything that ends before."""
        while self.ends and self.ends[0][0] <= moment:
            at, _, job = heapq.heappop(self.ends)
            self.bench.at = max(self.bench.at, at)
            self.bench.end(job)
            self.look()
        self.bench.at = max(self.bench.at, moment)


_ASKED = st.lists(
    st.tuples(
        st.integers(1, 8), st.integers(1, 20), st.integers(0, 100), st.integers(0, 30),
        st.sampled_from([0, 0, 1500, 6000]), st.sampled_from([0, 0, 1, 3]), st.booleans(),
    ),
    min_size=1,
    max_size=40,
)  # fmt: skip


@pytest.mark.parametrize("plugin", ["select/cons_tres", "select/linear"])
@given(asked=_ASKED)
@settings(max_examples=60, deadline=None)
def test_the_first_in_line_starts_when_it_was_said_or_before(
    plugin: str, asked: list[tuple[int, int, int, int, int, int, bool]]
) -> None:
    bench = Bench(plugin=plugin)
    play = _Play(bench)
    moment = bench.at
    for cpus, limit, percent, pause, memory, gpus, at_once in asked:
        moment += pause
        play.until(moment)
        job = bench.job(
            cpus, limit=limit * 10, pn_min_memory=memory, gres={"gpu": gpus} if gpus else {}, submit_time=moment
        )  # fmt: skip
        play.runs[job.job_id] = max(1, limit * percent // 10)
        if at_once and not bench.scheduler.try_start(job, bench.at):
            play.begin([job])
        else:
            bench.scheduler.submit(job, bench.at)
        play.look()
    play.until(moment + 1e9)
    assert not bench.scheduler.jobs, "every job has run"
    assert bench.selection.faults == []


@given(
    stream=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 10), st.integers(0, 20)), min_size=60, max_size=100),
    limited=st.booleans(),
)
@settings(max_examples=8, deadline=None)
def test_nobody_waits_longer_than_the_bound(stream: list[tuple[int, int, int]], *, limited: bool) -> None:
    """Urgent small jobs arrive without end, with limits that all keep or without any, and one wants the machine."""
    longest, most = 100, 300
    rules = replace(PLAIN, max_wait=most, qos=qos_lines(("Name=high Priority=1000",)))
    bench = Bench(rules)
    play = _Play(bench)
    play.runs[1] = 50
    patient = None
    for number, (cpus, tens, pause) in enumerate(stream * 2):
        if number == 8:
            patient = bench.job(8, user=7, limit=longest)
            play.runs[patient.job_id] = 50
            bench.scheduler.submit(patient, bench.at)
        job = bench.job(cpus, user=1000 + number % 5, qos="high", limit=tens * 10 if limited else 0)
        play.runs[job.job_id] = tens * 10
        bench.scheduler.submit(job, bench.at)
        play.promised.clear()
        play.begin(bench.look())
        moment = bench.at + pause
        while play.ends and play.ends[0][0] <= moment:
            at, _, done = heapq.heappop(play.ends)
            bench.at = max(bench.at, at)
            bench.end(done)
            play.promised.clear()
            play.begin(bench.look())
        bench.at = max(bench.at, moment)
        if patient is not None and patient.job_state == PENDING:
            # Its turn comes after max_wait; the five others may have had theirs just before, each for one job.
            assert bench.at - patient.submit_time <= most + 7 * longest


def test_who_waits_for_jobs_without_limits_is_not_passed_by_for_ever() -> None:
    bench = Bench(replace(PLAIN, max_wait=100))
    endless = [bench.run(4, limit=0) for _ in range(2)]
    bench.submit(8, limit=10, user=7)
    bench.end(endless[0])
    before = bench.submit(4, limit=50)
    assert bench.look() == [before]
    bench.at += 100
    bench.end(before)
    after = bench.submit(4, limit=50)
    assert not bench.look()
    assert bench.scheduler.try_start(bench.job(1, limit=1), bench.at) != ""
    assert bench.reason(after) == "Priority"


@pytest.mark.parametrize("rules", [PLAIN, Policy()])
def test_ten_thousand_jobs_of_a_few_shapes_are_few_questions(rules: Policy) -> None:
    bench = Bench(rules)
    running = [bench.run(4, limit=100) for _ in range(2)]
    for number in range(2000):
        bench.submit(8, user=1000 + number % 5)
    assert not bench.look()
    before = bench.scheduler._backfill.tests
    bench.end(running[0])
    assert not bench.look()
    assert bench.scheduler._backfill.tests - before <= 12
    before = bench.scheduler._backfill.tests
    for _ in range(100):
        bench.submit(8)
        assert not bench.look()
    assert bench.scheduler._backfill.tests - before <= 12
    assert bench.scheduler.next_time(bench.at) in (None, pytest.approx(bench.at + 30))


def test_the_rest_of_a_long_line_is_looked_at_later() -> None:
    bench = Bench(replace(PLAIN, bf_max_job_test=10, bf_interval=30))
    bench.run(6, limit=10_000)
    for number in range(50):
        bench.submit(1, limit=1000 + number, pn_min_memory=8000, user=2000 + number)
    bench.submit(8, limit=5)
    last = bench.submit(1, limit=5, user=9)
    started = bench.look()
    assert last not in started
    for _ in range(20):
        at = bench.scheduler.next_time(bench.at)
        if at is None:
            break
        bench.at = at
        started += bench.look()
    assert last in started


def test_tasks_that_start_do_not_count_among_those_that_find_no_room() -> None:
    bench = Bench(replace(PLAIN, bf_max_job_test=2))
    running = bench.run(8)
    bench.submit(1, array_tasks="0-9", array_limit=4, direct_priority=30_000)
    other = bench.submit(1)
    assert not bench.look()
    bench.end(running)
    started = bench.look()
    assert len(started) == 5
    assert started[-1] is other
