"""The table of ./dev bench: rows with and without a goal."""

from __future__ import annotations

import json

import pytest

from bench.rows import Row, show

_AT_MOST = Row("ours / peer", 0.002, 0.001, "s", 1.5)
_AT_LEAST = Row("a rate", 100, 50, "1/s", 1.5, more=True)
_ONLY_READ = Row("ours / a tool", 0.002, 0.001, "s")


def test_row_without_a_goal_is_never_missed(capsys: pytest.CaptureFixture[str]) -> None:
    show([_ONLY_READ])
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split() == ["ours", "/", "a", "tool", "2.00", "ms", "1.00", "2.00", "-"]


def test_row_tells_whether_its_goal_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    show([_AT_MOST, _AT_LEAST])
    _, over, kept = capsys.readouterr().out.splitlines()
    assert over.endswith("<=   1.5  missed")
    assert kept.endswith(">=   1.5")


def test_columns_of_rows_end_at_the_same_place(capsys: pytest.CaptureFixture[str]) -> None:
    show([_AT_LEAST, _ONLY_READ])
    assert len({len(line) for line in capsys.readouterr().out.splitlines()}) == 1


@pytest.mark.parametrize("row", [_AT_MOST, _AT_LEAST, _ONLY_READ], ids=lambda row: row.what)
def test_row_is_the_same_after_json(row: Row) -> None:
    assert vars(Row.of(json.loads(json.dumps(row.as_json())))) == vars(row)
