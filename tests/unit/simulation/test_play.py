"""Plays of small workloads that are written down: what happens when, to whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodectl.lab.simulation import described, json_workload, stage, swf
from nodectl.lab.simulation.story import Played, Story
from nodectl.scheduler.policy import Policy, qos_lines
from unit.simulation.authors import written

Job = dict[str, Any]


def played(
    jobs: list[Job], nodes: str = "4c,mem=100", *, events: list[Job] | None = None, plugin: str = "select/cons_tres",
    policy: Policy | None = None, epilog: float = 0.0, calls: list[dict[str, Any]] | None = None,
) -> Played:  # fmt: skip
    workload = json_workload.parse("here", json.dumps({"jobs": jobs, "events": events or []}).encode())
    setting = stage.Setting(policy or Policy(), seconds=0, epilog=epilog)
    told = None if calls is None else calls.append
    return stage.play(plugin, described.nodes_of(nodes), workload, setting, told=told)


def stories(play: Played) -> dict[str, Story]:
    return {story.label: story for story in play.stories}


def spans(play: Played) -> dict[str, tuple[float, float, str]]:
    assert not play.violations, play.violations
    return {label: (round(story.start, 3), round(story.end, 3), story.state) for label, story in stories(play).items()}


def test_a_job_runs_as_long_as_its_program_or_its_limit() -> None:
    jobs: list[Job] = [{"run": 50, "limit": 60}, {"run": 90, "limit": 60}, {"run": 5, "exit_code": 3, "submit": 10}]
    assert spans(played(jobs)) == {
        "1": (0, 50, "COMPLETED"), "2": (0, 60, "TIMEOUT"), "3": (10, 15, "FAILED"),
    }  # fmt: skip


def test_one_that_does_not_fit_waits_and_a_short_one_goes_before_it() -> None:
    jobs: list[Job] = [
        {"run": 100, "limit": 100, "tasks": 3},
        {"run": 10, "limit": 10, "tasks": 4, "submit": 1},
        {"run": 20, "limit": 20, "submit": 2},  # ends before the first in line can start
        {"run": 20, "limit": 200, "submit": 3},  # does not
    ]
    assert spans(played(jobs)) == {
        "1": (0, 100, "COMPLETED"), "2": (100, 110, "COMPLETED"), "3": (2, 22, "COMPLETED"),
        "4": (110, 130, "COMPLETED"),
    }  # fmt: skip


def test_an_array_has_as_many_tasks_at_a_time_as_allowed() -> None:
    found = spans(played([{"run": [10, 20, 30, 40], "array": "0-3%2"}]))
    assert found == {
        "1_0": (0, 10, "COMPLETED"), "1_1": (0, 20, "COMPLETED"), "1_2": (10, 40, "COMPLETED"),
        "1_3": (20, 60, "COMPLETED"),
    }  # fmt: skip


def test_dependencies_are_by_the_numbers_of_the_workload() -> None:
    jobs: list[Job] = [
        {"id": 7, "run": 10, "exit_code": 1},
        {"id": 8, "run": 5, "dependency": "afternotok:7"},
        {"id": 9, "run": 5, "dependency": "afterok:7"},
    ]
    play = played(jobs)
    assert spans(play)["8"] == (10, 15, "COMPLETED")
    assert stories(play)["9"].state in ("PENDING", "CANCELLED")
    assert not stories(play)["9"].runs


def test_a_user_who_waits_and_thinks_submits_later() -> None:
    play = played([{"run": 10}, {"run": 5, "after": 1, "think": 30}])
    assert spans(play)["2"] == (40, 45, "COMPLETED")
    assert stories(play)["2"].wait == 0


def test_a_log_in_the_standard_workload_format_is_played() -> None:
    text = (
        "1 0 -1 60 4 -1 -1 -1 120 -1 1 7 1 -1 1 -1 -1 -1\n"
        "2 10 -1 30 2 -1 -1 -1 30 -1 1 8 1 -1 1 -1 -1 -1\n"
        "3 0 -1 30 1 -1 -1 -1 30 -1 1 8 1 -1 1 -1 1 5\n"
        "4 0 -1 30 400 -1 -1 -1 30 -1 1 8 1 -1 1 -1 1 5\n"
    )
    workload = swf.parse("log", text.encode())
    play = stage.play("select/cons_tres", described.nodes_of("4c"), workload, stage.Setting(seconds=0))
    assert spans(play) == {
        "1": (0, 60, "COMPLETED"), "2": (60, 90, "COMPLETED"), "3": (65, 95, "COMPLETED"), "4": (-1, 65, "REFUSED"),
    }  # fmt: skip


def test_a_begin_time_is_no_waiting() -> None:
    play = played([{"run": 10, "begin": 500}])
    assert spans(play) == {"1": (500, 510, "COMPLETED")}
    assert stories(play)["1"].wait == 0


def test_an_urgent_job_suspends_another_which_goes_on_later() -> None:
    policy = Policy(qos=qos_lines(("Name=high Preempt=normal",)), preempt_mode="suspend")
    jobs: list[Job] = [{"run": 100, "tasks": 4}, {"run": 30, "tasks": 4, "submit": 40, "qos": "high"}]
    play = played(jobs, policy=policy)
    assert spans(play) == {"1": (0, 130, "COMPLETED"), "2": (40, 70, "COMPLETED")}
    assert stories(play)["1"].runs[0].pauses == [(40, 70)]


def test_an_urgent_job_sends_another_back_into_the_line() -> None:
    policy = Policy(qos=qos_lines(("Name=high Preempt=normal",)), preempt_mode="requeue")
    jobs: list[Job] = [{"run": 100, "tasks": 4}, {"run": 30, "tasks": 4, "submit": 40, "qos": "high"}]
    play = played(jobs, policy=policy)
    assert stories(play)["1"].runs[0].how == "PREEMPTED"
    assert spans(play)["1"] == (70, 170, "COMPLETED")


def test_what_an_ended_job_held_is_free_after_its_epilog() -> None:
    jobs: list[Job] = [{"run": 10, "limit": 10, "tasks": 4}, {"run": 10, "tasks": 4}]
    assert spans(played(jobs, epilog=5)) == {"1": (0, 15, "COMPLETED"), "2": (15, 30, "COMPLETED")}


def test_a_drained_node_gets_nothing_new_until_it_is_resumed() -> None:
    jobs: list[Job] = [{"run": 50}, {"run": 10, "submit": 20}]
    events = [{"time": 10, "node": "n1", "state": "drain"}, {"time": 90, "node": "n1", "state": "resume"}]
    assert spans(played(jobs, events=events)) == {"1": (0, 50, "COMPLETED"), "2": (90, 100, "COMPLETED")}


def test_a_node_that_goes_down_ends_its_jobs_or_sends_them_back() -> None:
    jobs: list[Job] = [{"run": 50, "requeue": False}, {"run": 50}]
    events = [{"time": 10, "node": "n1", "state": "down"}, {"time": 90, "node": "n1", "state": "resume"}]
    assert spans(played(jobs, events=events)) == {"1": (0, 10, "NODE_FAIL"), "2": (90, 140, "COMPLETED")}


def test_a_job_that_said_so_goes_on_without_a_node_that_is_down() -> None:
    calls: list[dict[str, Any]] = []
    jobs: list[Job] = [{"run": 50, "tasks": 8, "nodes": 2, "no_kill": True}]
    events = [{"time": 10, "node": "n1", "state": "down"}]
    play = played(jobs, "2*4c", events=events, calls=calls)
    assert spans(play) == {"1": (10, 50, "COMPLETED")}
    first, second = stories(play)["1"].runs
    assert (first.how, sorted(first.shares), sorted(second.shares)) == ("RESIZED", [0, 1], [1])
    assert [call["arguments"] for call in calls if call["function"] == "select_p_job_resized"] == [["job 1", "node n1"]]


READY_LATE = """

asked = []


def select_p_job_ready(job_ptr):
    asked.append(job_ptr)
    return len(asked) > 5
"""
NOT_TWICE = """

begun = []


def select_p_job_begin(job_ptr):
    begun.append(job_ptr)
    if len(begun) == 1:
        return SLURM_ERROR
    held[job_ptr] = job_ptr.job_resrcs
"""


@pytest.mark.parametrize(
    ("more", "start"), [(READY_LATE, 0.0), (NOT_TWICE, 1.0)], ids=["ready late", "refuses to begin once"]
)
def test_a_plugin_may_need_time(tmp_path: Path, more: str, start: float) -> None:
    path = written(tmp_path)
    with open(path, "a") as file:
        file.write(more)
    play = played([{"run": 10, "limit": 60}], plugin=path)
    story = stories(play)["1"]
    assert story.state == "COMPLETED"
    assert story.start >= start
    assert story.end >= 10


def test_the_whole_life_of_a_job_in_its_order() -> None:
    calls: list[dict[str, Any]] = []
    played([{"run": 90, "limit": 60}], calls=calls)
    told = [call["function"].removeprefix("select_p_") for call in calls]
    wanted = (
        "node_init", "state_restore", "job_init", "job_test", "job_test", "job_begin", "job_ready", "step_pick_nodes",
        "job_signal", "job_fini", "step_finish", "step_finish", "state_save",
    )  # fmt: skip
    assert [name for name in told if name in wanted] == list(wanted)
    times = {call["function"]: call["time"] for call in calls}
    assert times["select_p_job_begin"] == 0
    assert times["select_p_job_fini"] == 60


def test_a_burst_that_has_room_starts_at_once_however_long_it_is() -> None:
    policy = Policy(bf_max_job_test=5, bf_interval=30)
    jobs: list[Job] = [{"run": 100, "limit": 100} for _ in range(16)]
    assert {start for start, _, _ in spans(played(jobs, "16c", policy=policy)).values()} == {0}


def test_the_object_of_an_arrays_task_is_copied_once(tmp_path: Path) -> None:
    """A second copy would lose what the plugin has written into the first one when the task began."""
    path = written(tmp_path)
    with open(path, "a", encoding="utf-8") as file:
        file.write("def select_p_select_jobinfo_alloc(): return ['new']\n")
        file.write("def select_p_select_jobinfo_copy(jobinfo): return [*jobinfo]\n")
    calls: list[dict[str, Any]] = []
    found = spans(played([{"run": [10, 10, 10], "array": "0-2"}], plugin=path, calls=calls))
    assert len(found) == 3
    assert sum(call["function"] == "select_p_select_jobinfo_copy" for call in calls) == 2
