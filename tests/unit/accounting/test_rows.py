"""Rows of accounting: what is made of records of jobs and steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodectl.model.accounting import usage
from nodectl.model.step_number import BATCH, EXTERN
from unit.accounting.made_up import MIB, job, record, row, rows, task


def test_a_step_alone_makes_its_job() -> None:
    [(found, steps)] = rows([record()])
    assert [found.id, *(step.id for step in steps)] == ["7", "7.0"]
    assert (found.state, found.name, found.submitted, found.started, found.ended) == (
        "COMPLETED", "solver", 1000.0, 1010.0, 1110.0,
    )  # fmt: skip
    assert found.elapsed(9e9) == 100
    assert found.waited(9e9) == 10
    assert found.cpus == 2


def test_a_jobs_own_record_says_more_than_its_steps() -> None:
    steps = [record(step=1), record(step=0), record(step=BATCH, tasks=[task(status=3 << 8)], state="FAILED")]
    [(found, listed)] = rows(steps, [job(job_state="FAILED")])
    assert [step.id for step in listed] == ["7.batch", "7.0", "7.1"]
    assert (found.name, found.exit, found.derived, found.time_limit) == ("batch job", (3, 0), 3, 3600)
    assert found.waited(9e9) == 50
    assert found.used.user == pytest.approx(3.0)
    assert found.gres == ("gpu:0", "gpu:1")
    assert listed[0].name == "batch"


def test_what_a_step_used_is_added_up_of_its_tasks() -> None:
    tasks = [task(0), task(1, user_seconds=3.0, max_rss_kib=5000, read_chars=1), task(2, system_seconds=0.0)]
    used = row(record(ntasks=3, tasks=tasks)).used
    assert (used.user, used.system) == (5.0, 1.0)
    assert used.max_rss == (5000 << 10, 1)
    assert used.min_cpu == (1.0, 2)
    assert (used.read, used.max_read) == (20 * MIB + 1, (10 * MIB, 0))
    assert used.written == 3 * MIB


def test_the_cgroup_knows_cpu_time_that_nobody_waited_for() -> None:
    assert row(record(cpu_seconds=[7.0, 2.0])).used.cpu == 9.0
    assert row(record(cpu_seconds=[0.1, 0.1])).used.cpu == 1.5  # it was made after the task
    orphans = {"user_seconds": 4.0, "system_seconds": 0.0, "max_rss_kib": 1, "read_chars": 2, "written_chars": 3}
    used = row(record(orphans=orphans)).used
    assert (used.cpu, used.read, used.written) == (5.5, 10 * MIB + 2, MIB + 3)


def test_memory_is_the_cgroups_where_it_counts() -> None:
    assert row(record(tasks=[task(peak_memory=3 * MIB)])).used.max_rss == (3 * MIB, 0)


@pytest.mark.parametrize(
    ("values", "pair"),
    [
        ({"tasks": [task(status=0)]}, (0, 0)),
        ({"tasks": [task(0, status=2 << 8), task(1, status=5 << 8)]}, (5, 0)),
        ({"tasks": [task(0, status=2 << 8), task(1, status=9)]}, (0, 9)),
        ({"tasks": [task(status=9)], "state": "OUT_OF_MEMORY"}, (0, 125)),
        ({"tasks": [], "state": "FAILED", "exit_status": 1}, (1, 0)),
        ({"tasks": [task(status=130 << 8)]}, (130, 0)),
    ],
)
def test_exit_code_and_signal_are_told_apart(values: dict[str, Any], pair: tuple[int, int]) -> None:
    assert row(record(**values)).exit == pair


def test_a_job_without_steps_has_its_own_exit_code() -> None:
    found = rows([], [job(exit_code=3), job(8, exit_code=137, job_state="CANCELLED")])
    assert [one.exit for one, _ in found] == [(3, 0), (0, 9)]


def test_a_job_that_runs_has_not_ended_when_its_time_will_be_up() -> None:
    [(found, _)] = rows([], [job(job_state="RUNNING", end_time=9e9)])
    assert (found.ended, found.elapsed(1100.0)) == (0.0, 100.0)


def test_a_job_of_which_a_step_runs_has_not_ended() -> None:
    running = record(step=1, state="RUNNING", started=None, ended=None, tasks=[])
    [(found, _)] = rows([record(), running])
    assert (found.state, found.ended) == ("RUNNING", 0.0)
    assert found.elapsed(1210.0) == 210  # from the moment its running step was submitted


def test_of_a_requeued_job_the_last_run_is_told_unless_all_are_asked_for() -> None:
    steps = [record(step=BATCH), record(step=BATCH, restart=1, started=2000.0, ended=2050.0)]
    jobs = [job(job_state="REQUEUED"), job(restart_cnt=1, start_time=2000.0, end_time=2050.0)]
    [(found, listed)] = rows(steps, jobs)
    assert (found.restarts, found.elapsed(0), len(listed)) == (1, 50, 1)
    assert [one.state for one, _ in rows(steps, jobs, every_run=True)] == ["REQUEUED", "COMPLETED"]


def test_tasks_of_an_array_are_named_by_it_and_stand_together() -> None:
    jobs = [
        job(20),
        job(10, array_job_id=10, array_tasks="3-9:2", job_state="PENDING", start_time=0.0, end_time=0.0),
        job(30, array_job_id=10, array_task_id=0),
    ]
    found = rows([record(30, EXTERN)], jobs)
    assert [one.id for one, _ in found] == ["10_[3-9:2]", "10_0", "20"]
    assert found[1][1][0].id == "10_0.extern"
    assert found[1][1][0].raw_id == "30.extern"


def test_a_record_told_twice_counts_once() -> None:
    [(found, listed)] = rows([record(ended=None, state="RUNNING", tasks=[]), record()])
    assert [step.state for step in listed] == ["COMPLETED"]
    assert found.used.cpu == 1.5


def test_what_goes_over_the_wire_does_not_grow_with_the_tasks() -> None:
    one, many = (
        len(json.dumps(usage.of_step(record(ntasks=count, tasks=[task(n) for n in range(count)]))))
        for count in (1, 512)
    )
    assert many < one + 100
    assert len(json.dumps(usage.of_step(record(command=["x" * 4000])))) < one + 300


def test_a_clock_that_was_set_meanwhile_makes_no_job_longer_or_shorter() -> None:
    day = 86_400.0
    for jump in (day, -day):
        [(found, steps)] = rows([record(ended=1110.0 + jump, clock_set=jump)])
        assert (found.elapsed(9e9), steps[0].elapsed(9e9)) == (100, 100)
        held = rows(
            [record(step=BATCH, ended=1110.0 + jump, clock_set=jump)], [job(start_time=1010, end_time=1110 + jump)]
        )
        assert held[0][0].elapsed(9e9) == 100
        corrected = job(start_time=1010 + jump, end_time=1110 + jump, clock_set=jump)
        held = rows([record(step=BATCH, ended=1110.0 + jump, clock_set=jump)], [corrected])
        assert held[0][0].elapsed(9e9) == 100
