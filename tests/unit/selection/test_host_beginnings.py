"""What the host makes sure of when a job begins with what was chosen for it."""

from __future__ import annotations

from pathlib import Path

from nodectl.selection.host import Choice
from nodectl.selection.modes import SELECT_MODE_RUN_NOW
from unit.selection.stage import FIRST, stage


def test_choice_that_another_job_has_begun_with_meanwhile_is_no_longer_free(tmp_path: Path) -> None:
    theatre = stage(tmp_path, FIRST, "1*1s:2c:2t")
    first, second = theatre.job(), theatre.job()
    for job in (first, second):
        assert isinstance(theatre.selection.job_test(job, SELECT_MODE_RUN_NOW), Choice)
    assert not theatre.selection.job_begin(second)
    assert "is another job's" in theatre.selection.job_begin(first)
