"""Every placement that was measured on a real Slurm comes out as measured, or as the table of differences says."""

from __future__ import annotations

import pytest

from oracle.cases import CASES, Case, cases, differences, every_case
from oracle.differences import DIFFERENCES, Row

MACHINES = sorted(path.stem for path in CASES.glob("*.jsonl"))


def _told(case: Case) -> str:
    wrong = differences(case)
    return f"{case}: " + "; ".join(f"{name} measured {wanted}, here {got}" for name, (wanted, got) in wrong.items())


@pytest.mark.parametrize("mode", ["step", "job", "alloc", "frag"])
@pytest.mark.parametrize("machine", MACHINES)
def test_tasks_are_placed_as_slurm_places_them(machine: str, mode: str) -> None:
    mine = [case for case in cases(machine) if case.row["mode"] == mode]
    wrong = [case for case in mine if differences(case) and not any(row.covers(case) for row in DIFFERENCES)]
    assert not wrong, "\n".join(map(_told, wrong))


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.name)
def test_every_row_of_the_table_covers_only_cases_that_differ(row: Row) -> None:
    covered = [case for case in every_case() if row.covers(case)]
    assert covered
    assert all(map(differences, covered))


def test_less_than_one_case_in_a_hundred_differs() -> None:
    every = list(every_case())
    assert 100 * sum(1 for case in every if any(row.covers(case) for row in DIFFERENCES)) < len(every)
