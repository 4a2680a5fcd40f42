"""A lab's day: six users, four GPUs that jobs share, 400 jobs, two that do nothing, and one user who goes round.

Each job writes when it began and ended, its CPUs, its GPU and its shards. No two of them had the same at a time.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nodectl.model.cpu_list import parse_cpulist
from rootful import node
from vm import service
from vm.service import CONFIG, UNIT, wait_until

pytestmark = pytest.mark.all

LAB = Path("/srv/lab")
DAY, MAILS = LAB / "day", LAB / "mails"
SENDMAIL = LAB / "sendmail"
GPUS = [Path(f"/dev/lab{number}") for number in range(4)]
SHARDS = 4  # of each
LOOP = 7  # the major number of loop devices: opening one that is not used harms no one
KEYS = f"""\
select_type = "select/cons_tres"
over_subscribe = "no"
gres = ["Name=gpu File=/dev/lab[0-3]", "Name=shard Count={SHARDS * len(GPUS)}"]
constrain_devices = "yes"
sendmail = "{SENDMAIL}"
idle_after = 60
idle_grace = 10
idle_action = "end"
max_submit_jobs_per_user = 100
"""
# What each user asks for, in an array of so many tasks. Two of them want a mail for each task.
MANY = {
    "ann": (67, "--gres=shard:1", "--mail-type=END,ARRAY_TASKS"),
    "ben": (67, "--gpus=1", "--mail-type=END"),
    "cleo": (67, "-c2", "--mail-type=END,ARRAY_TASKS"),
    "dan": (67, "--gres=shard:3", "--mail-type=END"),
    "eve": (66, "--mem=100M", "--mail-type=END"),
    "mal": (66, "-n1", "--mail-type=END"),
}
JOBS = sum(many for many, *_ in MANY.values())
IDLERS = ("ann", "ben")
# Only words of the shell: a program takes long under emulation.
SCRIPT = f"""
cpus() {{ while read key list; do [ "$key" = Cpus_allowed_list: ] && break; done </proc/self/status; }}
read begin _ </proc/uptime
cpus
had=$list
opened=
for number in 0 1 2 3; do (: </dev/lab$number) 2>/dev/null && opened=$opened$number; done
if [ "$USER" = mal ]; then
    taskset -pc 0-$(($(nproc --all) - 1)) $$ >/dev/null 2>&1
    cpus
    had=$list
    setsid sleep 10000 </dev/null >/dev/null 2>&1 &
fi
sleep 0.2
read end _ </proc/uptime
echo "$SLURM_JOB_ID $USER $begin $end $had ${{SLURM_JOB_GPUS--}} ${{SLURM_SHARDS_ON_NODE-{SHARDS}}} x$opened" >>{DAY}
"""


class Ran(NamedTuple):
    """What a job wrote: seconds since the boot, its CPUs and GPU, how much of that, which GPUs it could open."""

    job: int
    user: str
    begin: float
    end: float
    cpus: str
    gpu: str
    shards: int
    opened: str


@pytest.fixture(autouse=True)
def served() -> None:
    """In place of the others' fixture: jobs run from one test to the next."""


@pytest.fixture(scope="module")
def jobs() -> Iterator[dict[str, int]]:
    """The arrays of the users, submitted, and the two jobs that do nothing: `idle ann`, `idle ben`."""
    for user in MANY:
        if service.run("id", user).returncode:
            service.run("useradd", "--create-home", user)
    service.run("modprobe", "loop")
    LAB.mkdir()
    for path in (DAY, MAILS):
        path.touch()
        path.chmod(0o666)
    SENDMAIL.write_text(f"#!/bin/sh\nexec sed -n 's/^Message-ID: <\\(.*\\)@.*/\\1/p' >>{MAILS}\n")
    SENDMAIL.chmod(0o755)
    for number, path in enumerate(GPUS):
        os.mknod(path, stat.S_IFBLK, os.makedev(LOOP, number))
        path.chmod(0o666)
    CONFIG.write_text(KEYS)
    service.systemctl("restart", UNIT)
    try:
        idle = {f"idle {user}": submit(user, "sleep 10000", "--mail-type=ALL") for user in IDLERS}
        yield idle | {user: array(user) for user in MANY}
    finally:
        service.run("nodectl", "cancel", *(word for user in MANY for word in ("-u", user)))
        for path in GPUS:
            path.unlink()
        service.settle("")
        shutil.rmtree(LAB)
        service.assert_clean()


def submit(user: str, script: str, *options: str) -> int:
    """A user's batch job; its number."""
    home = pwd.getpwnam(user).pw_dir
    return int(service.nodectl("submit", "--parsable", "-D", home, *options, "--wrap", script, user=user))


def array(user: str) -> int:
    """A user's array of MANY jobs, whose output goes nowhere; its number."""
    many, *options = MANY[user]
    return submit(user, SCRIPT, f"--array=0-{many - 1}", "-o", "/dev/null", *options)


def ran() -> list[Ran]:
    found = []
    for line in DAY.read_text().splitlines():
        job, user, begin, end, cpus, gpu, shards, opened = line.split()
        found.append(Ran(int(job), user, float(begin), float(end), cpus, gpu, int(shards), opened[1:]))
    return found


def mails() -> Counter[tuple[int, str]]:
    """How often each event of a job was told by mail."""
    found: Counter[tuple[int, str]] = Counter()
    for line in MAILS.read_text().splitlines():
        job, _, event, *_ = line.split(".")
        found[int(job), event] += 1
    return found


def states() -> dict[int, tuple[str, str]]:
    """User and state of each job in the accounts."""
    lines = service.nodectl("acct", "-nPX", "-S", "now-1day", "-o", "jobidraw,user,state").splitlines()
    rows = [line.split("|") for line in lines]
    return {int(job): (user, state.split()[0]) for job, user, state in rows if user in MANY}


def test_half_of_the_jobs_have_ended_at_noon(jobs: dict[str, int]) -> None:
    assert len(jobs) == len(MANY) + len(IDLERS)
    wait_for(JOBS // 2)


def test_all_have_ended_in_the_evening_and_nothing_was_given_twice(jobs: dict[str, int]) -> None:
    wait_for(JOBS)
    wait_until(lambda: len(states()) == JOBS + len(IDLERS), "all are in the accounts")
    ended = Counter(states().values())
    assert ended == {(user, "COMPLETED"): many for user, (many, *_) in MANY.items()} | {
        (user, "CANCELLED"): 1 for user in IDLERS
    }
    day = ran()
    assert len({one.job for one in day}) == JOBS
    used: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in day:
        for cpu in parse_cpulist(one.cpus):
            used[f"CPU {cpu}"].append((one.begin, one.end))
        if one.gpu != "-":
            used[f"GPU {one.gpu}"] += [(one.begin, one.end)] * one.shards
    for what, times in used.items():
        at_once = most_at_once(times)
        assert at_once <= (SHARDS if what.startswith("GPU") else 1), (what, at_once)
    assert {name for name in used if name.startswith("GPU")} == {f"GPU {number}" for number in range(len(GPUS))}


def test_no_job_opens_the_gpu_of_another_or_leaves_a_process(jobs: dict[str, int]) -> None:
    assert all(one.opened == one.gpu.replace("-", "") for one in ran())
    assert service.run("pgrep", "-u", "mal").stdout == ""


def test_every_end_was_told_once(jobs: dict[str, int]) -> None:
    of_tasks = {user: [job for job, (owner, _) in states().items() if owner == user] for user in ("ann", "cleo")}
    idle = {jobs[f"idle {user}"] for user in IDLERS}
    expected = {(job, "END") for user in of_tasks for job in of_tasks[user] if job not in idle}
    expected |= {(jobs[user], "END") for user in ("ben", "dan", "eve", "mal")}
    expected |= {(job, event) for job in idle for event in ("BEGIN", "IDLE", "END")}
    wait_until(lambda: len(mails()) >= len(expected), "all mails are there")
    assert mails() == Counter(dict.fromkeys(expected, 1))
    assert json.loads(service.nodectl("report", "--idle", "--json"))["idle"] == []


def wait_for(count: int) -> None:
    node.wait_until(lambda: len(ran()) >= count, f"{count} jobs have written", 380)


def most_at_once(times: list[tuple[float, float]]) -> int:
    """The highest number of intervals that overlap."""
    changes = sorted([(begin, 1) for begin, _ in times] + [(end, -1) for _, end in times])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
