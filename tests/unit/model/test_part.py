"""What a step is a part of: its numbers, and its way through a step's file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.model.cpu_list import format_cpulist
from nodectl.model.part import Part, numbers_of
from nodectl.model.step import Step, Task
from nodectl.model.wire import lean_json

PART = {"nodes": "n[1-3]", "nnodes": 3, "nodeid": 1, "ntasks": 9, "tasks": "2,4-5", "tasks_per_node": "3(x3)",
        "exchange": "/run/exchange.sock"}  # fmt: skip


def step(**changes: object) -> Step:
    fields = {**dict.fromkeys(Step.FIELDS), "job_id": 7, "step_id": 2, "allocation": 3, "base": 1, "step_cpus": 1}
    return Step(**{**fields, "node_name": "n2", "ntasks": 3, "cpu_masks": [1, 0, 1], "stack": [], **changes})


def from_file(written: object) -> Step:
    return Step.from_json(lean_json.load_object(lean_json.dumps(written).encode()))


def test_a_part_comes_back_from_its_steps_file() -> None:
    read = from_file(step(part=Part(PART)).as_json())
    assert read.part is not None
    assert read.part.as_json() == PART
    assert (read.nnodes, read.nodeid, read.nodelist, read.total_tasks) == (3, 1, "n[1-3]", 9)
    assert (list(read.numbers), read.tasks_per_node) == ([2, 4, 5], "3(x3)")


def test_a_file_of_before_is_of_a_step_that_is_no_part() -> None:
    written = step(part=None).as_json()
    del written["part"]
    for read in (from_file(written), from_file(step(part=None).as_json())):
        assert read.part is None
        assert (read.nnodes, read.nodeid, read.nodelist, read.total_tasks) == (1, 0, "n2", 3)
        assert (list(read.numbers), read.tasks_per_node) == ([0, 1, 2], "3")


def test_a_task_is_told_by_its_number_in_the_whole_step() -> None:
    assert (Task(1, 0).number, Task(1, 0).global_id) == (1, 1)
    assert (Task(1, 0, 5).local_id, Task(1, 0, 5).global_id) == (1, 5)


@given(st.sets(st.integers(0, 500), min_size=1))
def test_every_set_of_numbers_is_read_as_it_is_written(numbers: set[int]) -> None:
    assert numbers_of(format_cpulist(numbers), len(numbers), 501) == sorted(numbers)


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "1,1", "2,1", "1-2,2", "3-1", "9", "0-9", "-1", "x", "1;2", "٣", "0-3"]
)
def test_what_is_no_list_of_ascending_numbers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no number|not behind|more than"):
        numbers_of(text, 3, 9)


def test_a_range_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(ValueError, match="more than 3"):
        numbers_of("0-99999999999", 3, 10**12)
