"""What it costs that many jobs wait for others: counted, in questions to the history and in jobs that are looked at."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.happened import Outcome, Target
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.host import Selection
from nodectl.selection.records import JobRecord
from unit.scheduler.bench import PLAIN, Bench

_TERMS = 256  # the most of one job


class Asked(Bench):
    """Counts what is asked of the history."""

    def __init__(self, selection: Selection | None = None) -> None:
        super().__init__(selection=selection)
        self.questions: Counter[Target] = Counter()
        self.scheduler = Scheduler(self.selection, PLAIN, new_id=lambda: next(self.numbers), outcome=self._ask)

    def _ask(self, job: int, task: int | None) -> Outcome | None:
        self.questions[job, task] += 1
        return self.ended.get((job, task))


def _in_history(bench: Bench, tasks: int) -> str:
    """Terms for tasks that have ended, and for one array that has not."""
    for index in range(tasks):
        bench.ended[9000, index] = "COMPLETED"
    return "afterok:" + ":".join(f"9000_{index}" for index in range(tasks))


def test_what_has_ended_is_asked_for_once_however_many_wait_for_it_and_whoever_asks_for_the_queue() -> None:
    bench = Asked()
    running = bench.run(8)
    text = f"{_in_history(bench, _TERMS - 1)}:{running.job_id}"
    jobs = [bench.submit(dependency=text) for _ in range(20)]
    assert max(bench.questions.values()) == 1
    asked = bench.questions.total()
    for _ in range(3):
        bench.scheduler.briefs(jobs, bench.at)
    assert bench.questions.total() == asked
    assert {job.details.dependency for job in jobs} == {f"afterok:{running.job_id}"}


def test_a_restart_asks_the_history_nothing_before_others_are_served() -> None:
    bench = Asked()
    running = bench.run(8)
    text = f"{_in_history(bench, _TERMS - 1)}:{running.job_id}"
    jobs = [bench.job(dependency=text) for _ in range(20)]
    after = Asked(bench.selection)
    after.ended = bench.ended
    after.scheduler.restore([running, *jobs], bench.at)
    assert after.questions.total() == 0
    assert {job.state_reason for job in jobs} == {"Dependency"}
    assert after.scheduler.next_time(after.at) == after.at  # a round is to begin at once
    pieces = [after.questions.total() for one in after.scheduler.schedule(after.at) if one is None]
    assert len(pieces) >= len(jobs)
    assert pieces[-1] == _TERMS - 1
    assert {job.details.dependency for job in jobs} == {f"afterok:{running.job_id}"}


def test_an_end_that_changes_nothing_for_those_who_wait_makes_none_of_them_be_looked_at() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-7")
    tasks = bench.look()
    later = [bench.submit(dependency=f"{kind}:{array.job_id}") for kind in ("afterok", "afterany", "after") * 5]
    bench.look()
    for task in tasks[:-1]:
        bench.end(task)
        assert set(bench.scheduler._book.unlooked.values()) <= {job for job in later if not job.details.dependency}
    bench.end(tasks[-1])
    assert len(bench.scheduler._book.unlooked) == 10


def test_one_users_waiting_jobs_have_a_bounded_number_of_terms_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodectl.scheduler.waits._MOST_TERMS", 10)
    bench = Bench()
    first = bench.run(8)
    text = ",".join(f"after{kind}:{first.job_id}" for kind in ("ok", "any", "notok"))
    jobs = [bench.submit(dependency=text) for _ in range(3)]
    with pytest.raises(
        NotAdmitted, match=r"jobs of u1000 would wait for 12 jobs in all, and 10 is the most: name fewer"
    ):
        bench.submit(dependency=text)
    bench.submit(dependency=text, user=1001)
    bench.submit(dependency=text, user=0)
    bench.scheduler.update(jobs[0], {"dependency": ""}, bench.at)
    array = bench.submit(array_tasks="0-3", dependency=text)
    with pytest.raises(NotAdmitted, match="10 is the most"):
        bench.scheduler.set_apart(array, 1, bench.at)
    assert array.array_tasks == "0-3"
    bench.scheduler.cancel(jobs[1], bench.at)
    assert bench.scheduler.set_apart(array, 1, bench.at).details.dependency == text


def _corresponding(bench: Bench, tasks: str) -> tuple[JobRecord, JobRecord]:
    first = bench.submit(array_tasks=tasks, held="user")
    return first, bench.submit(array_tasks=tasks, dependency=f"aftercorr:{first.job_id}")


def test_tasks_that_wait_for_their_counterparts_are_gone_through_once_in_pieces() -> None:
    bench = Asked()
    for index in range(2000):
        bench.ended[9000, index] = "FAILED"
    bench.ended[9000, 1500] = "COMPLETED"
    bench.ended[9000, None] = "FAILED"
    array = bench.submit(array_tasks="0-1999", dependency="aftercorr:9000")
    asked = [bench.questions.total()]
    assert asked[0] < 600
    started = []
    for one in bench.scheduler.schedule(bench.at):
        started += [one] if one is not None else []
        asked.append(bench.questions.total())
    assert max(after - before for before, after in itertools.pairwise(asked)) < 600
    assert [one.job.array_task_id for one in started] == [1500]
    total = bench.questions.total()
    assert total < 2100
    assert bench.reason(array) == "DependencyNeverSatisfied"
    assert bench.questions.total() == total


def test_a_counterpart_that_ends_is_the_only_one_that_is_looked_at_again() -> None:
    bench = Asked()
    first, second = _corresponding(bench, "0-1999")
    bench.look()
    asked = bench.questions.total()
    task = bench.scheduler.set_apart(first, 1700, bench.at)
    bench.scheduler.release(task, bench.at)
    assert bench.look() == [task]
    bench.end(task)
    assert [one.array_task_id for one in bench.look()] == [1700]
    assert bench.questions.total() == asked
    assert bench.reason(second) == "Dependency"


def test_cancelled_tasks_are_told_to_those_who_wait_for_them() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-9999", held="user")
    one = bench.submit(dependency=f"afterany:{array.job_id}_77")
    other = bench.submit(dependency=f"afterany:{array.job_id}_78")
    bench.scheduler.cancel(array, bench.at, "0-77:7")
    assert bench.look() == [one]
    assert bench.reason(other) == "Dependency"


def test_more_corresponding_tasks_than_are_gone_through_are_refused() -> None:
    bench = Bench()
    first = [bench.submit(array_tasks="0-999999", held="user") for _ in range(5)]
    text = "aftercorr:" + ":".join(str(one.job_id) for one in first)
    with pytest.raises(NotAdmitted, match="1000000 tasks would each wait for 5 others"):
        bench.submit(array_tasks="0-999999", dependency=text)


def test_the_history_is_asked_about_a_dependency_in_pieces_before_the_job_comes() -> None:
    bench = Asked()
    text = _in_history(bench, _TERMS)
    pieces = [bench.questions.total() for _ in bench.scheduler.learning(text)]
    assert pieces == list(range(1, _TERMS + 1))
    bench.submit(dependency=text)
    assert bench.questions.total() == _TERMS


def test_a_dependency_that_names_no_job_is_asked_about_up_to_that() -> None:
    bench = Asked()
    assert len(list(bench.scheduler.learning("afterok:77:78:79"))) == 0
    assert list(bench.questions) == [(77, None)]
    assert list(bench.scheduler.learning("nonsense")) == list(bench.scheduler.learning("")) == []


def test_a_restart_takes_over_a_queue_in_pieces() -> None:
    bench = Bench()
    running = bench.run(8)
    jobs = [bench.job(dependency=f"afterok:{running.job_id}") for _ in range(50)]
    after = Bench(selection=bench.selection)
    assert sum(1 for _ in after.scheduler.restoring([running, *jobs], bench.at)) >= len(jobs)
    assert len(after.scheduler.jobs) == len(jobs) + 1
