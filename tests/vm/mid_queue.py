"""Runs in the machine before it is reset a second time: an owner sets limits for ten users, two of them fill the
machine, a third submits an array that depends on what runs, others wait for other reasons. What `nodectl queue` and
`nodectl explain` say is noted for `test_queue_reset.py`. Then the power is cut off.
"""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

from vm import mid_step, service
from vm.service import CONFIG, UNIT, wait_until

NOTES = Path("/root/ring/queue_before_the_reset.json")
USERS = ("ann", "ben", "cleo", "dan", "eve", "finn", "gus", "hal", "ida", "jo")
CPUS = os.cpu_count() or 1
HALF = CPUS // 2
MOST_SUBMITTED = 3
LIMITS = f"""\
select_type = "select/cons_tres"
over_subscribe = "no"
max_cpus_per_user = {HALF}
max_submit_jobs_per_user = {MOST_SUBMITTED}
default_time = 3600
"""
_WAITS = "until [ -e go ]; do sleep 0.2; done; echo $SLURM_RESTART_COUNT >> ran"
_ONCE = "echo ${SLURM_ARRAY_TASK_ID-0} >> ran"


def main() -> None:
    """Never returns."""
    for user in USERS:
        service.run("useradd", "--create-home", user)
    CONFIG.write_text(LIMITS)
    service.systemctl("restart", UNIT)
    jobs = {"ann": submit("ann", _WAITS, f"-c{HALF}"), "ben": submit("ben", _WAITS, f"-c{HALF}")}
    wait_until(lambda: all(row(job)["state"] == "RUNNING" for job in jobs.values()), "two users fill the machine")
    jobs["cleo"] = submit("cleo", _ONCE, "--array=0-3", "-c2", f"--dependency=afterok:{jobs['ann']}")
    jobs["dan"] = submit("dan", _ONCE, f"-c{HALF}")
    jobs["ann again"] = submit("ann", _ONCE, "-c1")
    jobs["eve"] = submit("eve", _ONCE, "--hold")
    jobs["finn"] = submit("finn", _ONCE, "--begin=now+1day")
    gus = [submit("gus", _ONCE, "--hold") for _ in range(MOST_SUBMITTED)]
    refused = service.run("nodectl", "submit", "--hold", "--wrap", _ONCE, user="gus")
    notes = {
        "boot": mid_step.boot(),
        "jobs": jobs,
        "gus": gus,
        "refused": [refused.returncode, refused.stdout, refused.stderr],
        "rows": {name: row(job) for name, job in jobs.items()},
        "explained": {name: explain(job, name.split()[0]) for name, job in jobs.items()},
        "words": service.nodectl("explain", str(jobs["dan"]), user="dan"),
    }
    NOTES.write_text(json.dumps(notes))
    os.sync()
    submit("hal", _ONCE)  # of this nothing is known but that it was accepted
    Path("/proc/sysrq-trigger").write_text("b")


def submit(user: str, script: str, *options: str) -> int:
    """A user's batch job in their own directory; its number."""
    home = pwd.getpwnam(user).pw_dir
    return int(service.nodectl("submit", "--parsable", "-D", home, *options, "--wrap", script, user=user))


def queue(user: str = "") -> list[dict[str, Any]]:
    """What a user is told of the queue."""
    found: list[dict[str, Any]] = json.loads(service.nodectl("queue", "--json", user=user))["jobs"]
    return found


def row(job: int) -> dict[str, Any]:
    """One job's."""
    return next((one for one in queue() if one["job"] == job), {"state": "gone", "reason": ""})


def explain(job: int, user: str) -> dict[str, Any]:
    """Why a job waits, as its user is told; of one that runs it is how it was laid out."""
    found: dict[str, Any] = json.loads(service.nodectl("explain", "--json", str(job), user=user))
    return found


if __name__ == "__main__":
    main()
