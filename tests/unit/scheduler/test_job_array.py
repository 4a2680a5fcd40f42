"""The indices of a job array as text and as ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.scheduler import job_array

_RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(1, 5)).map(
        lambda one: (f"{one[0]}-{one[0] + one[1]}:{one[2]}", range(one[0], one[0] + one[1] + 1, one[2]))
    ),
    min_size=1,
    max_size=6,
)


def test_a_million_tasks_are_one_range() -> None:
    tasks, limit = job_array.parse("0-999999%7")
    assert (job_array.text_of(tasks), job_array.size(tasks), limit) == ("0-999999", 1_000_000, 7)


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-5:0", "1-5%0", "1-5%", "-1", "1,,2", "1-2-3", "9999999999", "٣"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range of indices|number of tasks"):
        job_array.parse(text)


@given(_RANGES)
def test_each_index_is_there_once_and_the_text_reads_back(parts: list[tuple[str, range]]) -> None:
    tasks = job_array.tasks_of(",".join(text for text, _ in parts))
    expected = sorted({index for _, one in parts for index in one})
    assert list(job_array.indices(tasks)) == expected
    assert list(job_array.indices(job_array.tasks_of(job_array.text_of(tasks)))) == expected


@given(_RANGES, st.data())
def test_taking_one_task_leaves_all_others(parts: list[tuple[str, range]], data: st.DataObject) -> None:
    tasks = job_array.tasks_of(",".join(text for text, _ in parts))
    everything = list(job_array.indices(tasks))
    gone = data.draw(st.sampled_from(everything))
    assert list(job_array.indices(job_array.without(tasks, gone))) == [one for one in everything if one != gone]


@given(_RANGES, _RANGES)
def test_taking_ranges_leaves_all_others(parts: list[tuple[str, range]], others: list[tuple[str, range]]) -> None:
    tasks = job_array.tasks_of(",".join(text for text, _ in parts))
    gone = job_array.tasks_of(",".join(text for text, _ in others))
    left = set(job_array.indices(tasks)) - set(job_array.indices(gone))
    assert list(job_array.indices(job_array.without_all(tasks, gone))) == sorted(left)
