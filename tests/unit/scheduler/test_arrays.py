"""Arrays: one record while its tasks wait, a job for each that has started."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.scheduler.decisions import NotAdmitted, Start
from unit.scheduler.bench import Bench, policy


def test_a_million_tasks_are_one_job_that_waits() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-999999")
    started = bench.look()
    assert [task.array_task_id for task in started] == list(range(8))
    assert len(bench.scheduler.jobs) == 9
    assert array.array_tasks == "8-999999"
    assert len({task.job_id for task in started}) == 8
    assert all(task.array_job_id == array.job_id for task in started)
    assert all(one.array is array for one in bench.decided if isinstance(one, Start))


def test_the_last_task_keeps_the_arrays_own_number() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="3,7")
    first, last = bench.look()
    assert first.array_task_id == 3
    assert last is array
    assert (last.array_task_id, last.array_tasks) == (7, "")
    assert isinstance(bench.decided[-1], Start)
    assert bench.decided[-1].array is None


def test_no_more_tasks_run_at_a_time_than_allowed() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-9%2")
    first, second = bench.look()
    assert bench.reason(array) == "JobArrayTaskLimit"
    other = bench.submit()
    assert bench.look() == [other]
    bench.end(second)
    assert len(bench.look()) == 1
    bench.scheduler.suspend(first, bench.at)
    assert not bench.look()


def test_an_array_of_one_task_at_a_time_is_told_so() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-9%1")
    bench.look()
    (said,) = bench.scheduler.briefs([array], bench.at)
    assert said.words == "1 task of its array runs, the most at a time"


def test_indices_have_a_bound() -> None:
    bench = Bench(policy(max_array_size=100))
    bench.submit(array_tasks="0-99")
    with pytest.raises(NotAdmitted, match="index 100, 99 is the greatest"):
        bench.submit(array_tasks="0-100")
    with pytest.raises(NotAdmitted, match="Invalid job array specification"):
        bench.submit(array_tasks="5-1")


def test_waiting_tasks_are_cancelled_one_by_one_or_together() -> None:
    bench = Bench()
    full = bench.run(8)
    array = bench.submit(array_tasks="0-9")
    assert not bench.scheduler.cancel(array, bench.at, "2-4")
    assert array.array_tasks == "0-1,5-9"
    with pytest.raises(NotAdmitted):
        bench.scheduler.cancel(array, bench.at, "x")
    assert bench.scheduler.cancel(array, bench.at)
    assert array.job_id not in bench.scheduler.jobs
    bench.end(full)
    assert not bench.look()


def test_an_array_is_not_cut_into_endless_pieces() -> None:
    bench = Bench()
    bench.run(8)
    array = bench.submit(array_tasks="0-999999")
    with pytest.raises(NotAdmitted, match="ranges would be left"):
        bench.scheduler.cancel(array, bench.at, "0-999999:3")
    with pytest.raises(NotAdmitted, match="overlap"):
        bench.submit(array_tasks="0-999999:2,0-999999:3")
    assert array.array_tasks == "0-999999"
    bench.scheduler.cancel(array, bench.at, ",".join(map(str, range(0, 30_000, 3))))
    with pytest.raises(NotAdmitted, match="10000 are the most"):
        bench.scheduler.cancel(array, bench.at, ",".join(map(str, range(40_000, 70_000, 3))))


def test_a_task_that_could_not_begin_waits_by_itself() -> None:
    bench = Bench()
    bench.submit(array_tasks="0-1%1")
    (task,) = bench.look()
    bench.scheduler.begin_failed(task, "no room in /var", bench.at)
    assert [one.array_task_id for one in bench.look()] == [1]
    bench.end(bench.decided[-1].job)
    assert bench.look(60) == [task]


def test_an_array_that_waits_counts_as_one_submitted_job() -> None:
    bench = Bench(policy(submitted=2))
    bench.submit(array_tasks="0-99999")
    bench.submit()
    with pytest.raises(NotAdmitted, match="QOSMaxSubmitJobPerUserLimit"):
        bench.submit()


def test_tasks_run_on_after_a_restart() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-9%3")
    tasks = bench.look()
    after = Bench(selection=bench.selection)
    after.scheduler.restore([array, *tasks], bench.at)
    assert not after.look()
    after.numbers = bench.numbers
    after.end(tasks[0])
    assert [task.array_task_id for task in after.look()] == [3]


def test_a_task_that_is_held_alone_waits_and_the_others_start() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-3")
    task = bench.scheduler.set_apart(array, 1, bench.at)
    bench.scheduler.hold(task, "user", bench.at)
    assert [one.array_task_id for one in bench.look()] == [0, 2, 3]
    assert (array.array_tasks, task.array_job_id, bench.reason(task)) == ("", array.job_id, "JobHeldUser")
    bench.scheduler.release(task, bench.at)
    assert bench.look() == [task]


def test_a_task_that_is_set_apart_waits_for_what_its_array_waits_for() -> None:
    bench = Bench()
    other = bench.run(1)
    array = bench.submit(array_tasks="0-3", dependency=f"afterok:{other.job_id}")
    later = bench.submit(dependency=f"afterany:{array.job_id}")
    task = bench.scheduler.set_apart(array, 1, bench.at)
    assert bench.look() == []
    assert bench.reason(task) == "Dependency"
    bench.end(other)
    started = bench.look()
    assert sorted(one.array_task_id or 0 for one in started) == [0, 1, 2, 3]
    for one in started:
        assert bench.reason(later) == "Dependency"
        bench.end(one)
    assert bench.look() == [later]


def test_a_corresponding_task_is_waited_for_by_the_task_that_was_set_apart() -> None:
    bench = Bench()
    first = bench.submit(array_tasks="0-1", held="user")
    second = bench.submit(array_tasks="0-1", dependency=f"aftercorr:{first.job_id}")
    task = bench.scheduler.set_apart(second, 1, bench.at)
    bench.scheduler.release(first, bench.at)
    zero, one = bench.look()
    bench.end(zero)
    assert bench.look() == [second]
    assert second.array_task_id == 0
    assert bench.reason(task) == "Dependency"
    bench.end(one)
    assert bench.look() == [task]


def test_tasks_are_not_set_apart_beyond_the_limit_of_jobs() -> None:
    bench = Bench(policy(submitted=2))
    array = bench.submit(array_tasks="0-9", held="user")
    bench.scheduler.set_apart(array, 1, bench.at)
    with pytest.raises(NotAdmitted, match="QOSMaxSubmitJob"):
        bench.scheduler.set_apart(array, 2, bench.at)
    assert array.array_tasks == "0,2-9"


class FullDisk:
    """No number can be drawn from it."""

    def __next__(self) -> int:
        raise NotAdmitted("no job id can be drawn: the disk is full")


NO_NUMBERS: Any = FullDisk()


def test_a_task_without_a_number_is_not_lost_and_holds_up_nobody_else() -> None:
    bench = Bench()
    array, other = bench.submit(array_tasks="0-9"), bench.submit(user=1001)
    numbers, bench.numbers = bench.numbers, NO_NUMBERS
    assert bench.look() == [other]
    assert array.array_tasks == "0-9"
    assert bench.reason(array) == "JobLaunchFailure"
    assert "disk is full" in bench.scheduler.explain(array, bench.at).words
    bench.numbers = numbers
    assert [task.array_task_id for task in bench.look(60)] == list(range(7))


def test_a_task_without_a_number_is_not_set_apart() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-9", held="user")
    bench.numbers = NO_NUMBERS
    with pytest.raises(NotAdmitted, match="disk is full"):
        bench.scheduler.set_apart(array, 3, bench.at)
    assert array.array_tasks == "0-9"
    assert list(bench.scheduler.jobs) == [array.job_id]
