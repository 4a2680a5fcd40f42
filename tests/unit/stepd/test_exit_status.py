"""One exit status for all tasks, as srun's."""

from __future__ import annotations

import pytest

from nodectl.kernel.children import said
from nodectl.launch.stepd import exit_status

CORE = 0x80


def code(number: int) -> int:
    return number << 8


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], 0),
        ([code(0)], 0),
        ([code(3)], 3),
        ([code(255)], 255),
        ([code(0), code(1), code(2), code(3)], 3),
        ([code(3), code(0)], 3),
        ([9], 137),
        ([15, 9], 143),  # among signals too the highest
        ([9, 15], 143),
        ([11 | CORE], 139),
        ([code(255), 1], 129),  # any signal beats any code
        ([code(10), 9, code(0)], 137),
        ([code(137)], 137),
    ],
)
def test_signals_beat_codes_and_the_highest_counts(statuses: list[int], expected: int) -> None:
    assert exit_status.of_tasks(statuses) == expected


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (code(3), "ended with exit code 3"),
        (9, "was ended by signal 9"),
        (11 | CORE, "was ended by signal 11 and dumped core"),
    ],
)
def test_a_status_in_words(status: int, text: str) -> None:
    assert said(status) == text
