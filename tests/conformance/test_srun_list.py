"""The table of srun's tests, options and variables (srun.md): each row has a test that exists, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROWS = [
    line.strip("| \n").split(" | ", 1)
    for line in (HERE / "srun.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and " here |" not in line
]
TEST = re.compile(r"`([\w/.]+\.py)`(?: \(`(test_\w+)`\))?")
# Of family 1 those that did not pass unmodified when they were first tried.
FAMILY = (
    "3 4 5 8 10 12 13 14 15 17 18 22 23 24 27 31 35 38 40 41 43 45 48 49 53 54 62 63 64 65 72 75 76 84 88 89 91 94 101 "
    "102 103 104 105 106 107 108 109 110 111 112 116 117 118 120"
)


def test_each_of_slurms_tests_has_a_row() -> None:
    listed = {row[0] for row in ROWS}
    assert {f"1.{number}" for number in FAMILY.split()} <= listed
    assert {"6.*", "7.2", "7.9", "7.15", "7.19", "9.1", "12.*", "14.*", "15.*", "17.*"} <= listed


@pytest.mark.parametrize(("name", "told"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_a_test_that_there_is_or_a_reason(name: str, told: str) -> None:
    named = TEST.findall(told)
    for path, test in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in text, f"{name}: {path} has no {test}"
    assert named or len(told.split()) > 3 or told.endswith("likewise"), f"{name}: neither a test nor a reason"
