"""Jobs that wait for other jobs, in sbatch's language."""

from __future__ import annotations

import pytest

from nodectl.scheduler.decisions import End, NotAdmitted
from nodectl.scheduler.dependency import BadDependency, parse
from unit.scheduler.bench import Bench, numbers


@pytest.mark.parametrize(
    "text",
    ["", "after", "afterok:", "afterok:x", "before:1", "afterok:1,afterok:2?afterok:3", "expand:1_2", "singleton:1",
     "expand:1:2", "expand:1?afterok:2", "expand:1,expand:2", "expand:1+5",
     "afterok:1+5", "aftercorr:1_2", "after:-1", "afterok:1:", "after:1+", "afterok:99999999999"],
)  # fmt: skip
def test_what_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadDependency):
        parse(text)


def test_a_dependency_is_written_as_it_is_read() -> None:
    assert str(parse("afterok:7:8_3,after:9+5,singleton")) == "afterok:7,afterok:8_3,after:9+5,singleton"
    assert str(parse("AfterOK:7?afterany:8")) == "afterok:7?afterany:8"


@pytest.mark.parametrize(
    ("kind", "state", "meets"),
    [("afterok", "COMPLETED", True), ("afterok", "FAILED", False), ("afterok", "CANCELLED", False),
     ("afternotok", "FAILED", True), ("afternotok", "TIMEOUT", True), ("afternotok", "COMPLETED", False),
     ("afterany", "FAILED", True), ("afterany", "CANCELLED", True), ("aftercorr", "COMPLETED", True)],
)  # fmt: skip
def test_a_job_starts_when_the_other_ended_as_it_wants(kind: str, state: str, *, meets: bool) -> None:
    bench = Bench()
    first = bench.run()
    second = bench.submit(dependency=f"{kind}:{first.job_id}")
    assert not bench.look()
    assert bench.reason(second) == "Dependency"
    assert bench.scheduler.explain(second, bench.at).for_whom == (f"job {first.job_id} of u1000",)
    bench.end(first, state)
    assert (second in bench.look()) is meets
    if not meets:
        assert bench.reason(second) == "DependencyNeverSatisfied"


def test_of_several_all_or_any_must_happen() -> None:
    bench = Bench()
    one, two = bench.run(), bench.run()
    both = bench.submit(dependency=f"afterok:{one.job_id}:{two.job_id}")
    any_of = bench.submit(dependency=f"afterok:{one.job_id}?afterok:{two.job_id}")
    bench.end(one, "FAILED")
    assert not bench.look()
    assert bench.reason(both) == "DependencyNeverSatisfied"
    assert bench.reason(any_of) == "Dependency"
    bench.end(two)
    assert bench.look() == [any_of]


def test_what_has_happened_is_struck_off() -> None:
    bench = Bench()
    one, two = bench.run(), bench.run()
    third = bench.submit(dependency=f"afterok:{one.job_id}:{two.job_id}")
    bench.end(one)
    assert bench.look() == []
    assert third.details.dependency == f"afterok:{two.job_id}"


def test_after_waits_for_the_start_and_the_minutes_behind_it() -> None:
    bench = Bench()
    first = bench.submit(8)
    at_once = bench.submit(dependency=f"after:{first.job_id}")
    later = bench.submit(dependency=f"after:{first.job_id}+5")
    assert bench.look() == [first]
    bench.end(first)
    assert bench.look() == [at_once]
    assert bench.reason(later) == "Dependency"
    assert bench.scheduler.next_time(bench.at) == first.start_time + 300
    assert bench.look(300) == [later]


def test_minutes_pass_while_the_other_runs() -> None:
    bench = Bench()
    first = bench.run(1)
    later = bench.submit(dependency=f"after:{first.job_id}+5")
    assert bench.scheduler.next_time(bench.at) == first.start_time + 300
    assert not bench.look(299)
    assert bench.look(1) == [later]


def test_jobs_of_one_name_run_one_after_the_other() -> None:
    bench = Bench()
    jobs = [bench.submit(name="solo", dependency="singleton") for _ in range(3)]
    stranger = bench.submit(name="solo", user=2000, dependency="singleton")
    assert bench.look() == [jobs[0], stranger]
    assert bench.reason(jobs[1]) == "Dependency"
    bench.end(jobs[0])
    assert bench.look() == [jobs[1]]


def test_a_job_of_that_name_which_starts_first_holds_singletons_back() -> None:
    bench = Bench()
    full = bench.run(8)
    alone = bench.submit(name="solo", dependency="singleton", nice=100)
    plain = bench.submit(name="solo", cpus=8)
    bench.end(full)
    assert bench.look() == [plain]
    assert bench.reason(alone) == "Dependency"
    bench.end(plain)
    assert bench.look() == [alone]


def test_unknown_jobs_are_refused_and_ended_ones_are_asked_for() -> None:
    bench = Bench()
    with pytest.raises(NotAdmitted, match="there is no job 4711"):
        bench.submit(dependency="afterok:4711")
    bench.ended[4711, None] = "COMPLETED"
    job = bench.submit(dependency="afterok:4711")
    assert bench.look() == [job]


def test_jobs_cannot_wait_for_each_other() -> None:
    bench = Bench()
    full = bench.run(8)
    one = bench.submit()
    two = bench.submit(dependency=f"afterok:{one.job_id}")
    three = bench.submit(dependency=f"afterok:{two.job_id}")
    with pytest.raises(NotAdmitted, match="wait for itself"):
        bench.scheduler.update(one, {"dependency": f"afterany:{three.job_id}"}, bench.at)
    with pytest.raises(NotAdmitted, match="wait for itself"):
        bench.scheduler.update(one, {"dependency": f"after:{one.job_id}"}, bench.at)
    assert one.details.dependency == ""
    bench.end(full)
    assert bench.look() == [one]


def test_a_dependency_is_changed_and_taken_away() -> None:
    bench = Bench()
    first = bench.run()
    second = bench.submit(dependency=f"afterok:{first.job_id}")
    bench.scheduler.update(second, {"dependency": ""}, bench.at)
    assert bench.look() == [second]


def test_a_job_waits_for_all_tasks_of_an_array_or_for_one() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-2")
    tasks = bench.look()
    assert len(tasks) == 3
    whole = bench.submit(dependency=f"afterok:{array.job_id}")
    one = bench.submit(dependency=f"afterok:{array.job_id}_1")
    bench.end(next(task for task in tasks if task.array_task_id == 1))
    assert bench.look() == [one]
    for task in tasks:
        bench.end(task)
    assert bench.look() == [whole]


def test_a_failed_task_fails_its_array() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-1")
    tasks = bench.look()
    whole = bench.submit(dependency=f"afterok:{array.job_id}")
    bench.end(tasks[0], "FAILED", 1)
    bench.end(tasks[1])
    assert not bench.look()
    assert bench.reason(whole) == "DependencyNeverSatisfied"


def test_tasks_wait_for_the_tasks_of_their_number() -> None:
    bench = Bench()
    array = bench.submit(array_tasks="0-2")
    tasks = {task.array_task_id: task for task in bench.look()}
    then = bench.submit(array_tasks="0-2", dependency=f"aftercorr:{array.job_id}")
    assert not bench.look()
    bench.end(tasks[2])
    assert [task.array_task_id for task in bench.look()] == [2]
    bench.end(tasks[0], "FAILED", 1)
    assert not bench.look()
    bench.end(tasks[1])
    assert [task.array_task_id for task in bench.look()] == [1]
    assert bench.reason(then) == "DependencyNeverSatisfied"


def test_what_was_waited_for_lives_through_a_restart() -> None:
    bench = Bench()
    first = bench.run()
    second = bench.submit(dependency=f"afterok:{first.job_id}")
    third = bench.submit(dependency="afterany:1,afterok:1")
    after = Bench(selection=bench.selection)
    after.scheduler.restore([first, second, third], bench.at)
    assert not after.look()
    after.end(first)
    assert numbers(after.look()) == [second.job_id, third.job_id]


def test_a_thousand_singletons_cost_no_thousand_looks_at_each_end() -> None:
    bench = Bench()
    jobs = [bench.submit(name="solo", dependency="singleton") for _ in range(1000)]
    assert bench.look() == jobs[:1]
    before = bench.scheduler._backfill.tests
    bench.end(jobs[0])
    assert bench.look() == jobs[1:2]
    assert bench.scheduler._backfill.tests - before < 5


def test_an_end_for_which_thousands_wait_is_looked_at_in_pieces() -> None:
    bench = Bench()
    jobs = [bench.run() for _ in range(8)]
    text = "afterany:" + ":".join(str(job.job_id) for job in jobs)
    waiting = [bench.submit(dependency=text) for _ in range(200)]
    bench.end(jobs[0])
    assert bench.scheduler.next_time(bench.at) == bench.at
    assert list(bench.scheduler.schedule(bench.at)).count(None) > 10
    for job in jobs[1:]:
        bench.end(job)
    assert bench.look() == waiting[:8]


def test_a_web_of_dependencies_is_not_followed_without_end() -> None:
    bench = Bench()
    bench.run(8)
    layer = [bench.submit() for _ in range(40)]
    first = layer[0]
    for _ in range(8):
        text = "afterany:" + ":".join(str(job.job_id) for job in layer)
        layer = [bench.submit(dependency=text) for _ in range(40)]
    with pytest.raises(NotAdmitted, match="Job dependency problem"):
        bench.scheduler.update(first, {"dependency": f"afterany:{layer[0].job_id}"}, bench.at)
    with pytest.raises(BadDependency, match="more than"):
        parse("afterany:" + ":".join(["7"] * 1000))


def test_who_wants_to_ends_when_what_it_waits_for_cannot_happen_any_more() -> None:
    bench = Bench()
    first = bench.run(1)
    second = bench.submit(1, dependency=f"afterok:{first.job_id}", kill_invalid_dep=True)
    third = bench.submit(1, dependency=f"afterok:{second.job_id}", kill_invalid_dep=True)
    patient = bench.submit(1, dependency=f"afterok:{first.job_id}")
    bench.look()
    bench.end(first, "FAILED", 1)
    assert bench.scheduler.next_time(bench.at) is not None
    bench.look()
    ended = [one for one in bench.decided if isinstance(one, End)]
    assert [(one.job, one.state, one.reason) for one in ended] == [
        (second, "CANCELLED", "DependencyNeverSatisfied"),
        (third, "CANCELLED", "DependencyNeverSatisfied"),
    ]
    assert list(bench.scheduler.jobs.values()) == [patient]
