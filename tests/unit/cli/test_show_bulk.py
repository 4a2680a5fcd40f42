"""`nodectl show` of a step that ran any number of commands."""

from __future__ import annotations

from nodectl.cli import show

RECORD = {
    "job": 7, "step": 0, "name": "bulk", "user": "alice", "uid": 1001, "node": "n", "command": ["bulk"], "cwd": "/",
    "state": "FAILED", "ntasks": 2, "cpus": "3", "submitted": 1000.0, "started": 1000.0, "ended": 1001.0, "tasks": [],
}  # fmt: skip


def test_show_of_a_bulk_step_has_counts_failures_and_the_slowest() -> None:
    bulk = {
        "commands": 12, "running": 0, "succeeded": 10, "failed": 2, "not_executed": 1,
        "failures": [{"seq": 3, "status": 512, "command": "/no/such", "why": "execute: No such file"},
                     {"seq": 11, "status": 9, "command": "sleep 9", "why": ""}],
        "slowest": [{"seq": 11, "seconds": 8.25, "status": 9, "command": "sleep 9"}],
    }  # fmt: skip
    text = show.text_of({**RECORD, "bulk": bulk}, now=2000.0)
    assert "12 commands begun: 10 succeeded, 2 failed, 1 not executed" in text
    rows = [row.split() for row in text[-6:]]
    assert rows[0] == ["FAILED", "HOW", "COMMAND"]
    assert rows[1] == ["3", "execute:", "No", "such", "file", "/no/such"]
    assert rows[2] == ["11", "signal", "9", "(SIGKILL)", "sleep", "9"]
    assert rows[-1] == ["11", "8.250", "s", "sleep", "9"]
