"""The hours of a week, in a real service."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from typing import Any

import pytest

from rootful.node import NOBODY, wait_until
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


def test_a_job_that_ends_while_no_service_runs_is_charged_until_its_end() -> None:
    with queue_running(week_hours=["CpuHours=100"]) as node:
        job = submit(node, "until [ -e end ]; do sleep 0.02; done", "--time=1:00:00")
        wait_for(node, job, "RUNNING")
        record: Any = node.call("ShowJob", job=str(job))["record"]
        node.stop()
        (node.scratch / "end").touch()
        wait_until(lambda: list(node.steps.glob("*.record")), "its step has ended")
        most = (time.time() - record["start"]) * record["cpus"]
        wait_until(lambda: not node.processes(), "its step runner has ended")
        node.start()
        wait_for(node, job, "COMPLETED")
        node.stop()
        with contextlib.closing(sqlite3.connect(f"{node.values['state_dir']}/history.db")) as history:
            ((used,),) = history.execute("SELECT cpu FROM week")
        assert 0 < used <= most
