"""What the interface answers in every hook of every context, compared with what it answered there."""

from __future__ import annotations

import pytest

from conformance.calls import CALL_DIFFERENCES, Answers, CallRow, by_hook, change, words
from conformance.scenario import LANGUAGES, recordings
from conformance.theatre import Theatres

RECORDINGS = recordings()
ONE_TASK, FOUR_TASKS, BATCH = "core/01_srun_n1_true", "core/02_srun_n4_label", "core/03_sbatch_two_sruns"
PLACES = [(name, place) for name in (ONE_TASK, FOUR_TASKS, BATCH) for place in by_hook(RECORDINGS[name]["calls"], "c")]


def found(theatres: Theatres, name: str, language: str) -> dict[str, Answers]:
    """The answers in each hook here. What an sbatch calls is called by a trial."""
    if name == BATCH:
        return by_hook(theatres.tried()[language], language)
    return by_hook(theatres.play(RECORDINGS[name])[language].records, language)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_hook_finds_what_is_recorded_or_what_the_table_of_differences_says(
    theatres: Theatres, name: str, place: str, language: str
) -> None:
    here = found(theatres, name, language)[place]
    wanted = by_hook(RECORDINGS[name]["calls"], language)[place]
    for row in CALL_DIFFERENCES:
        change(row, place, wanted, here)
    assert here == wanted


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", [ONE_TASK, FOUR_TASKS])
def test_no_hook_is_called_that_is_not_recorded(theatres: Theatres, name: str, language: str) -> None:
    assert found(theatres, name, language).keys() == by_hook(RECORDINGS[name]["calls"], language).keys()


@pytest.mark.parametrize("language", LANGUAGES)
def test_codes_have_the_recorded_words(theatres: Theatres, language: str) -> None:
    shown = words(theatres.play(RECORDINGS[ONE_TASK])[language].records)
    recorded = RECORDINGS["words"]["words"]
    common = shown.keys() & recorded.keys()
    assert len(common) >= 6
    assert {code: shown[code] for code in common} == {code: recorded[code] for code in common}


@pytest.mark.parametrize("row", CALL_DIFFERENCES, ids=lambda row: row.calls[0])
def test_every_row_changes_what_some_recording_says(row: CallRow) -> None:
    changed = False
    for name, place in PLACES:
        before = by_hook(RECORDINGS[name]["calls"], "c")[place]
        asked = {
            *before,
            *(call for call in row.calls if "*" not in call),
            "job_control.setenv",
            "job_control.unsetenv",
        }
        after = dict(before)
        change(row, place, after, asked)
        changed = changed or after != before
    assert changed
