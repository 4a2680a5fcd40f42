"""The hours of a week, in a real service."""

from __future__ import annotations

import re

import pytest

from rootful.node import NOBODY
from rootful.queued import queue_running, refused, state, submit, wait_for

pytestmark = pytest.mark.rootful
REASON = "AssocGrpCPUMinutesLimit"


def test_hours_promised_to_a_running_job_are_known_after_a_restart_and_free_at_its_end() -> None:
    with queue_running(week_hours=["Users=daemon CpuHours=1", "CpuHours=100"]) as node:
        assert f"({REASON})" in refused(node, "#!/bin/sh\n", "--time=101:00:00", "--cpus-per-task=1")
        first = submit(node, "sleep infinity", "--time=90:00:00")
        wait_for(node, first, "RUNNING")
        second = submit(node, "true", "--time=80:00:00")
        node.restart()
        said = node.nodectl("explain", str(second), user=NOBODY).stdout
        assert REASON in said
        assert "of 100 CPU-hours of this week" in said
        assert "a new week begins on " in said
        assert state(node, second) == "PENDING"
        report = node.nodectl("report", user=NOBODY).stdout
        assert re.search(r"^daemon +0\.00 of 1 +0\.00 of -$", report, re.MULTILINE), report
        assert re.search(r"^nobody +0\.\d\d of 100 +0\.00 of -$", report, re.MULTILINE), report
        assert node.nodectl("cancel", str(first), user=NOBODY).returncode == 0
        wait_for(node, second, "COMPLETED")
