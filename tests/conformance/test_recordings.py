"""Every recorded scenario that one node can play, with the same tracer as a Python plugin and as a compiled one."""

from __future__ import annotations

import copy
import fnmatch
import re

import pytest

from conformance.differences import DIFFERENCES, NOT_HERE, Row, expected, reason_not_here
from conformance.scenario import LANGUAGES, recorded, recordings
from conformance.theatre import Theatres

RECORDINGS = recordings()
LACKING = re.compile(r"\byet\b|\bno such option|\bnot (here|supported)\b")
HERE = {name: row for name, row in RECORDINGS.items() if "command" in row and not reason_not_here(name)}


COMPILED = "stack/40_*"  # plugins with faults that only a compiled one can have
PLAYS = [(name, language) for name in HERE for language in LANGUAGES
         if language == "c" or not fnmatch.fnmatchcase(name, COMPILED)]  # fmt: skip


@pytest.mark.parametrize(("name", "language"), PLAYS)
def test_scenario_comes_out_as_recorded_or_as_the_table_of_differences_says(
    theatres: Theatres, name: str, language: str
) -> None:
    result = theatres.play(HERE[name])[language].result
    wanted = expected(name, recorded(HERE[name]), language)
    if "stdout" not in HERE[name]:
        wanted.stdout = result.stdout
    assert result == wanted, result.stderr
    assert "Traceback" not in result.stderr + theatres.logged(language)


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.scenarios[0])
def test_every_row_changes_what_some_recording_says(row: Row) -> None:
    changed = set()
    for name, recording in HERE.items():
        before = recorded(recording)
        after = copy.deepcopy(before)
        for pattern in row.scenarios:
            if fnmatch.fnmatchcase(name, pattern):
                row.change(after)
                if after != before:
                    changed.add(pattern)
    assert changed == set(row.scenarios)


def test_every_scenario_is_played_or_has_a_reason_and_every_reason_a_scenario() -> None:
    for name in RECORDINGS.keys() - {"words"}:
        assert name in HERE or reason_not_here(name), name
    for pattern in NOT_HERE:
        matching = [name for name in RECORDINGS if fnmatch.fnmatchcase(name, pattern)]
        assert [name for name in matching if name not in HERE], pattern


def test_no_scenario_is_left_out_for_what_nodectl_lacks() -> None:
    """A reason of this kind is stale as soon as nodectl has it, and nobody looks: the row of a difference is tested."""
    assert [reason for reason in NOT_HERE.values() if LACKING.search(reason)] == []
