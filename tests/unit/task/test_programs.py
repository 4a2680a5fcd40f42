"""Which task of a step runs which program."""

from __future__ import annotations

import pytest

from nodectl.launch.task.programs import argv_of, tasks_of, wrong_with


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("0", [0]), ("0-2", [0, 1, 2]), ("3,0-1", [3, 0, 1]), ("7", [7]), ("8", None), ("0-8", None), ("2-1", None),
     ("", None), ("x", None), ("0,", None), ("-1", None), ("0-7,0", None), ("٣", None)],
)  # fmt: skip
def test_a_list_names_tasks_that_there_are(text: str, tasks: list[int] | None) -> None:
    assert tasks_of(text, 8) == tasks


def test_the_first_row_that_names_a_task_counts_and_a_star_takes_the_rest() -> None:
    rows = [["2-3", ["a", "%t of %o"]], ["3,1", ["b%t", "%o"]], ["*", ["c", "%t:%o"]]]
    assert wrong_with(rows, 5) == ""
    assert argv_of(rows, 5) == [["c", "0:0"], ["b1", "1"], ["a", "2 of 0"], ["a", "3 of 1"], ["c", "4:1"]]


def test_words_that_are_to_stay_do_and_are_shared() -> None:
    argv = ["a", "%t"]
    found = argv_of([["0-1", argv, True]], 2)
    assert found == [argv, argv]
    assert found[0] is found[1]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([["0", ["a"]]], "task 1 has no program"),
        ([["0-5", ["a"]]], "'0-5' is no list of the tasks 0 to 1"),
        ([["0-1", []]], "the tasks 0-1 have no program"),
        ([["*", [""]]], "the tasks * have no program"),
        ([["0-1", ["a"]]] * 60_000, "it says too much"),
        ([["*", ["a", "%t" * (9 << 20)]]], "it says too much"),
    ],
)
def test_what_cannot_be_run_is_refused(rows: list[list[object]], reason: str) -> None:
    assert wrong_with(rows, 2) == reason
