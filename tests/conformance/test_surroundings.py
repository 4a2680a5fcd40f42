"""What a program finds around it is what was recorded, or what the table of differences says."""

from __future__ import annotations

import pytest

from conformance.scenario import recordings
from conformance.surroundings import DIFFERENCES, Variable, around, in_order, settle, variables
from conformance.theatre import Theatres

RECORDINGS = recordings()
PROBED = [name for name, row in RECORDINGS.items() if row.get("probes")]


def differing(theatres: Theatres, name: str) -> set[tuple[Variable, str]]:
    """Plays the scenario and compares. Returns the rows of the table that had something to do."""
    played = in_order(theatres.play(RECORDINGS[name])["python"].probes)
    recorded = in_order(RECORDINGS[name]["probes"])
    assert len(played) == len(recorded)
    used = set()
    for theirs, ours in zip(recorded, played, strict=True):
        there, here = variables(theirs), variables(ours)
        used |= settle(name, there, here)
        assert here == there
        assert (ours["uid"] == 0) == (theirs["uid"] == 0)
        if name not in AT_ROOT:
            assert around(name, ours) == around(name, theirs)
    return used


# The recorded root typed in /, the test's does not.
AT_ROOT = {"env/slurm_job_env_root", "env/uid_option_root"}


@pytest.mark.parametrize("name", PROBED)
def test_program_finds_what_is_recorded_or_what_the_table_of_differences_says(theatres: Theatres, name: str) -> None:
    differing(theatres, name)


def test_every_row_of_the_table_has_something_to_do(theatres: Theatres) -> None:
    used = set().union(*(differing(theatres, name) for name in PROBED))
    assert {(row, pattern) for row in DIFFERENCES for pattern in row.names} == used
