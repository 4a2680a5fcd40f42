"""Formats of columns: widths, sides, what is cut, texts between them."""

from __future__ import annotations

import pytest

from nodectl.client.command import Failed
from nodectl.slurm.commands.column_format import by_letters, by_names
from nodectl.slurm.commands.job_fields import FIELDS

JOB = {
    "job": 7, "name": "a long name", "user": "alice", "uid": 0, "state": "RUNNING", "nodes": "n1", "used": 65.0,
    "time_limit": 3600, "cpus": 4, "partition": "local",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%i %j", "7 a long name"),
        ("%.6i|%6i|%t", "     7|7     |R"),
        ("%.4j", "a lo"),  # cut on the right, on whichever side it stands
        ("%4j|", "a lo|"),
        ("Job=%i State=%T", "Job=7 State=RUNNING"),
        ("%M %l %L", "1:05 1:00:00 58:55"),
        ("%.10M", "      1:05"),
    ],
)
def test_letters_give_columns_as_squeue_has_them(text: str, line: str) -> None:
    assert by_letters(text, FIELDS).line(JOB) == line


def test_headers_are_as_wide_as_their_columns() -> None:
    assert by_letters("%.18i %.9P %.2t %R", FIELDS).header() == f"{'JOBID':>18} {'PARTITION':>9} ST NODELIST(REASON)"
    assert by_letters("%.3i", FIELDS).header() == "JOB"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("JobID,State", f"{'7':20}{'RUNNING':20}"),
        ("jobid:5,state:.9", f"{'7':5}{'RUNNING':>9}"),
        ("JobID:5|,State:3;", "7    |RUN;"),
    ],
)
def test_names_give_columns_twenty_wide_unless_they_say_otherwise(text: str, line: str) -> None:
    assert by_names(text, FIELDS).line(JOB) == line


def test_all_stands_for_every_letter_with_bars_between() -> None:
    line = by_letters("%all", FIELDS).line(JOB | {"held_by": "run"})
    assert line.count("|") == len([field for field in FIELDS if field.letter])


@pytest.mark.parametrize("text", ["%1", "no column", "%Æ"])
def test_a_format_without_a_column_is_refused(text: str) -> None:
    with pytest.raises(Failed):
        by_letters(text, FIELDS)


def test_a_letter_or_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Failed, match="invalid"):
        by_letters("%!", FIELDS)
    with pytest.raises(Failed, match="nonsense"):
        by_names("JobID,nonsense", FIELDS)


def test_a_name_with_control_characters_does_not_reach_the_terminal() -> None:
    assert by_letters("%j", FIELDS).line({**JOB, "name": "x\x1b[2J"}) == "x\\x1b[2J"


def test_no_letter_and_no_name_means_two_things() -> None:
    for key in ("letter", "name"):
        names = [getattr(field, key).lower() if key == "name" else field.letter for field in FIELDS]
        given = [name for name in names if name]
        assert len(given) == len(set(given))
