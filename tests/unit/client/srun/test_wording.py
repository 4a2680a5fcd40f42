"""What a run says where it was called srun."""

from __future__ import annotations

import pytest

from nodectl.client.command import Failed
from nodectl.client.srun.wording import ALLOCATE, CREATE, refusal, said


def test_a_task_epilog_that_was_killed_is_told_as_srun_tells_it() -> None:
    text = "nodectl: error: step 7.0: task 1: task epilog '/e': had not ended after 5 s and was killed"
    assert said(text) == text.replace("error: ", "error: TaskEpilog failed status=9: ")
    assert said("nodectl: error: step 7.0: other") == "nodectl: error: step 7.0: other"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("Requested nodes are busy", "Unable to allocate resources: Requested nodes are busy"),
        ("--mem: 9 MiB are more than 8",
         "Unable to allocate resources: Requested node configuration is not available: --mem: 9 MiB are more than 8"),
        ("--cpu-bind: no such mask", "--cpu-bind: no such mask"),
    ],
)  # fmt: skip
def test_what_the_machine_does_not_have_begins_as_sruns_line(reason: str, told: str) -> None:
    assert refusal(Failed(reason, name="org.nodectl.InvalidRequest"), ALLOCATE) == told
    assert refusal(Failed(reason, name="org.nodectl.Busy"), CREATE) == told.replace(ALLOCATE, CREATE)
    assert refusal(Failed(reason), ALLOCATE) == reason  # not the service's
