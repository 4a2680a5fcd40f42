"""File name patterns of -i, -o and -e."""

from __future__ import annotations

import pytest

from nodectl.launch.streams import filename
from nodectl.model.step import Step

DEFAULTS: dict[str, object] = dict.fromkeys(Step.FIELDS)
STEP = Step(
    **{
        **DEFAULTS,
        "job_id": 42,
        "step_id": 7,
        "node_name": "n1",
        "user_name": "alice",
        "name": "my job",
        "cwd": "/home/a",
    }
)


def test_a_name_in_the_root_directory_has_one_slash() -> None:
    assert filename.expand("out", Step(**{**DEFAULTS, "job_id": 42, "step_id": 0, "cwd": "/"}), 0) == "/out"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("out", "/home/a/out"),
        ("/abs/out", "/abs/out"),
        ("../out", "/home/a/../out"),
        ("%t", "/home/a/3"),
        ("%j", "/home/a/42"),
        ("%A", "/home/a/42"),
        ("%J", "/home/a/42.7"),
        ("%s", "/home/a/7"),
        ("%N", "/home/a/n1"),
        ("%n", "/home/a/0"),
        ("%r", "/home/a/0"),
        ("%u", "/home/a/alice"),
        ("%x", "/home/a/my job"),
        ("%%", "/home/a/%"),
        ("%%t", "/home/a/%t"),
        ("%%%t", "/home/a/%3"),
        ("job%04j", "/home/a/job0042"),
        ("%2t-%3s", "/home/a/03-007"),
        ("%10j", "/home/a/0000000042"),
        ("%25j", "/home/a/0000000042"),  # ten digits are the most
        ("%1j", "/home/a/42"),
        ("%0t", "/home/a/3"),
        ("%4N", "/home/a/n1"),  # only numbers are padded
        ("%q", "/home/a/%q"),
        ("%3q", "/home/a/%3q"),
        ("a%", "/home/a/a%"),
        ("a%5", "/home/a/a%5"),
        ("%²t", "/home/a/%²t"),
        ("\\%t", "/home/a/%t"),
        ("%t\\", "/home/a/%t"),  # a backslash anywhere
        ("/x/%j/\\o", "/x/%j/o"),
        ("o_%j_%t.log", "/home/a/o_42_3.log"),
        ("\udcff%t", "/home/a/\udcff3"),
    ],
)
def test_a_pattern_becomes_the_tasks_file(pattern: str, expected: str) -> None:
    assert filename.expand(pattern, STEP, 3) == expected


@pytest.mark.parametrize(
    ("pattern", "differs"),
    [
        ("out", False),
        ("%j", False),
        ("%t", True),
        ("%5t", True),
        ("%%t", False),
        ("\\%t", False),
        ("%%%t", True),
        ("%", False),
        ("", False),
    ],
)
def test_which_patterns_give_each_task_a_file_of_its_own(pattern: str, differs: bool) -> None:
    assert filename.per_task(pattern) is differs
    assert (filename.expand(pattern, STEP, 0) != filename.expand(pattern, STEP, 1)) is differs


def test_a_name_is_no_longer_than_what_no_path_can_be_however_much_its_fields_mean() -> None:
    """The stepd has one for each task and stream; with the name of a job they had two megabytes each."""
    long = Step(**{**DEFAULTS, "job_id": 42, "step_id": 7, "name": "n" * 1024, "cwd": "/home/a"})
    name = filename.expand("%x" * 2048, long, 3)
    assert 4096 <= len(name) < 8192
    with pytest.raises(OSError, match="File name too long"):
        open(name, encoding="utf-8").close()
