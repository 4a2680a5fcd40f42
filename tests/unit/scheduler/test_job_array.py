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


@given(_RANGES, _RANGES)
def test_what_two_sets_have_in_common_is_found(parts: list[tuple[str, range]], others: list[tuple[str, range]]) -> None:
    tasks = job_array.tasks_of(",".join(text for text, _ in parts))
    named = job_array.tasks_of(",".join(text for text, _ in others))
    both = set(job_array.indices(tasks)) & set(job_array.indices(named))
    assert list(job_array.indices(job_array.common(tasks, named))) == sorted(both)
    assert job_array.meet(tasks, named) == bool(both)


@given(_RANGES, st.integers(0, 90))
def test_indices_are_gone_through_from_any_place(parts: list[tuple[str, range]], first: int) -> None:
    tasks = job_array.tasks_of(",".join(text for text, _ in parts))
    assert list(job_array.indices_from(tasks, first)) == [one for one in job_array.indices(tasks) if one >= first]


def test_work_on_ranges_with_steps_does_not_grow_with_their_indices() -> None:
    """A range of a thousand million indices: who expanded it would not come back."""
    evens, sixths = job_array.tasks_of("0-999999998:2"), job_array.tasks_of("0-999999996:6,999999999")
    assert job_array.text_of(job_array.common(evens, sixths)) == "0-999999996:6"
    assert (
        job_array.text_of(job_array.without_all(job_array.tasks_of("0-999999999"), evens)) == "1-999999997:2,999999999"
    )
    assert job_array.without_all(evens, evens) == []
    assert job_array.meet(evens, job_array.tasks_of("1-999999999:2")) is False
    assert job_array.text_of(job_array.tasks_of("0-999999999,5-500:5,7")) == "0-999999999"
    with pytest.raises(ValueError, match="ranges would be left"):
        job_array.without_all(evens, sixths)


def test_overlapping_ranges_with_steps_are_expanded_up_to_a_bound_and_paid_for() -> None:
    spent: list[int] = []
    assert job_array.text_of(job_array.tasks_of("0-8:2,1-9:2", spent.append)) == "0-9"
    assert sum(spent) == 2 + 10
    with pytest.raises(ValueError, match="separate them"):
        job_array.tasks_of("0-99999:2,1-99999:2", spent.append)
    assert sum(spent) == 2 + 10 + 2
