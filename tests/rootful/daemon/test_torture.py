"""A short campaign of `./dev torture`: whatever is struck by chance, no result is lost and nothing is left.

Nothing that depends on how busy the machine is counts here; `./dev torture` asserts that too.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rootful.node import PATIENCE, wait_until
from torture.inside import marked

COMMAND = Path(__file__).resolve().parents[2] / "torture" / "torture.py"
FAULTS, MESSAGES, MINUTES = 60, 3000, 0.2
JOBS = 120
HOSTILE = "silent,slow,half,descriptors,lingering,steps,runners"


def test_random_faults_hostile_users_and_mutated_messages_lose_no_result_and_leave_nothing() -> None:
    seed = secrets.randbits(32)
    words = [str(MINUTES), "--faults", str(FAULTS), "--messages", str(MESSAGES), "--hostile", HOSTILE]
    done = subprocess.run(
        [sys.executable, "-P", str(COMMAND), *words, "--seed", str(seed), "--json"],
        capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    again = f"./dev torture {' '.join(words)} --seed {seed}"
    assert done.stdout, f"{again}: {done.stderr}"
    report = json.loads(done.stdout)
    broken = [row["what"] for row in report["rows"] if not row["held"] and not row["timed"]]
    assert not broken, f"{again}: {broken}: {report['problems']}"
    counted = {row["what"]: row["value"] for row in report["rows"]}
    assert counted["faults"] > 0
    assert counted["others' steps during the attack"] > 0


def test_jobs_of_many_users_are_run_once_each_while_the_daemon_is_killed_again_and_again() -> None:
    seed = secrets.randbits(32)
    words = [str(JOBS), "--users", "12", "--kills", "1.5", "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, "-P", str(COMMAND.with_name("jobs.py")), *words, "--json"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    again = f"./dev torture jobs {' '.join(words)}"
    assert done.stdout, f"{again}: {done.stderr}"
    report = json.loads(done.stdout)
    assert report["held"], f"{again}: {report['problems']}"
    counted = {row["what"]: row["value"] for row in report["rows"]}
    assert counted["  answered"] + counted["  whose answer was lost with the daemon"] == JOBS
    assert counted["kills of the daemon"] > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_campaign_that_is_killed_leaves_nothing(number: int) -> None:
    words = [sys.executable, "-P", str(COMMAND), "10", "--messages", "0"]
    campaign = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: marked(campaign.pid), "the campaign has a node")
        ((directory, base),) = marked(campaign.pid)
        wait_until(lambda: os.path.isdir(base), "the node has a cgroup")
    finally:
        campaign.send_signal(number)
        campaign.wait(PATIENCE)
    wait_until(lambda: not directory.exists() and not os.path.exists(base), "all of it is gone")
