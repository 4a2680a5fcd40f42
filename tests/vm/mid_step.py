"""Runs in the machine before it is reset: begins steps of every sort, and cuts the power off under them.

Nothing is written to disk on their behalf but what nodectl itself writes: what `test_reset.py` has to know is there
before they begin.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

from vm import service
from vm.service import UNIT, Sleeper, wait_until, write_config

NOTES = Path("/root/ring/before_the_reset.json")
HISTORY = Path("/var/lib/nodectl/history.db")
CONTAINERS = 'job_container_type = "job_container/namespace"\n'
# Users' steps in the order in which they begin, what they ask for.
STEPS = {"alice": ("-J", "plain"), "bob": ("-J", "tasks", "-n2", "--mem=300M"), "alice again": ("-J", "suspended")}


def main() -> None:
    """Never returns."""
    write_config(CONTAINERS)
    service.systemctl("restart", UNIT)
    last = int(service.nodectl("run", "sh", "-c", "echo $SLURM_JOB_ID", user="alice"))
    service.record(last)
    NOTES.write_text(json.dumps({"boot": boot(), "last": last}))
    os.sync()
    for user, words in STEPS.items():
        step = Sleeper(user.split()[0], 0, *words)
    service.nodectl("suspend", str(step.job))
    wait_until(lambda: noted() == len(STEPS), "the service has noted what runs")
    Path("/proc/sysrq-trigger").write_text("b")


def boot() -> str:
    """This life of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def noted() -> int:
    """Of how many running steps the history knows."""
    with sqlite3.connect(f"file:{HISTORY}?mode=ro", uri=True) as history:
        return int(history.execute("SELECT count(*) FROM running").fetchone()[0])


if __name__ == "__main__":
    main()
