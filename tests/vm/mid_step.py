"""Runs in the machine before it is reset: begins steps of every sort, and cuts the power off under them.

Nothing is written to disk on their behalf but what nodectl itself writes: what `test_reset.py` has to know is there
before they begin.
"""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
import subprocess
from pathlib import Path

from vm import service
from vm.service import UNIT, Sleeper, wait_until, write_config

NOTES = Path("/root/ring/before_the_reset.json")
HISTORY = Path("/var/lib/nodectl/history.db")
CONTAINERS = 'job_container_type = "job_container/namespace"\n'
# Users' steps in the order in which they begin, what they ask for.
STEPS = {"alice": ("-J", "plain"), "bob": ("-J", "tasks", "-n2", "--mem=300M"), "alice again": ("-J", "suspended")}
# Commands of one step, and how many of them are known to have ended when the machine is reset: what more than a second
# takes, in which the log goes to the disk.
COMMANDS, ENDED = 240, 100


def bulk(*words: str) -> list[str]:
    """The words of a bulk step of alice's, whose outputs and log stay."""
    files = ("--results", str(home() / "bulk"), "--joblog", str(home() / "bulk.log"))
    script = "echo output {}; sleep 0.05"
    return ["-n2", *files, *words, script, ":::", *map(str, range(1, COMMANDS + 1))]


def home() -> Path:
    return Path(pwd.getpwnam("alice").pw_dir)


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
    service.start(*bulk(), user="alice", stdout=subprocess.DEVNULL, command="bulk")
    log = home() / "bulk.log"
    wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") > ENDED, "some commands have ended")
    wait_until(lambda: noted() == len(STEPS) + 1, "the service has noted what runs")
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
