"""The processes that keep the agents die, Slurm's controller does, the job's time is over: what ran has ended where it
has to, and nothing is left on any node.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from cluster.bed import Bed
from cluster.machine import THREE
from cluster.processes import children, inner
from cluster.test_first_run import agents_steps
from cluster.user import User, install
from rootful.node import NOBODY, wait_until

_HOLDER = "nodectl-python cluster start"


def _holder(user: User) -> int:
    (found,) = user.processes(_HOLDER)
    return found


def _srun(user: User) -> int:
    """The one that the holder has started, not the one that this has forked."""
    (found,) = (pid for pid in children(_holder(user)) if "/srun " in user.bed.processes(user.job.user).get(pid, ""))
    return found


def _job_directories(bed: Bed) -> list[str]:
    """Those that the nodes share."""
    return [str(path) for path in (bed.home(NOBODY) / ".local" / "state" / "nodectl" / "cluster").glob("*")]


@pytest.mark.parametrize("victim", [_holder, _srun])
def test_kill_9_of_what_keeps_the_agents_ends_all_and_a_run_begins_anew(
    user: User, victim: Callable[[User], int]
) -> None:
    steps = [user.popen("run", "-N3", "-n3", "sleep", "600", machine=machine) for machine in ("head", "n2")]
    wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
    os.kill(victim(user), signal.SIGKILL)
    for step in steps:
        _, error = step.communicate()
        assert step.returncode != 0
        assert (len(error.splitlines()), error[:20]) == (1, "nodectl: error: step"), error
        assert error.endswith(": the cluster has ended, or its agent here, and what ran with it\n")
    wait_until(lambda: not user.processes("/nodectl/bin/"), "none of its processes is left")
    assert not user.sleeps()
    assert not user.bed.files(NOBODY)
    assert not _job_directories(user.bed)
    done = user.nodectl("run", "-N3", "-n3", "hostname", machine="n1")
    assert (done.returncode, sorted(done.stdout.split())) == (0, [*THREE]), done.stderr


def test_the_jobs_time_limit_leaves_nothing(slurm: Bed) -> None:
    """Of a cluster that was started where salloc was typed, and of one that a script has. Tasks ignore SIGTERM."""
    task = "trap '' TERM; exec sleep 600"
    script = f'#!/bin/sh\nPATH={install(slurm, NOBODY)}:$PATH\nexec nodectl run -N3 -n3 sh -c "{task}"\n'
    batch = slurm.sbatch(script, "-wn1,n2,n3", "--output=/dev/null")
    with slurm.salloc() as job:
        user = User(slurm, job)
        user.start("head")
        step = user.popen("run", "-N3", "-n3", "sh", "-c", task)
        wait_until(lambda: len(user.sleeps()) == 6, "tasks sleep")
        for one in (batch, job.job):
            now = ("scontrol", "update", f"JobId={one}", "EndTime=now")  # a second later that is too late for Slurm
            wait_until(lambda now=now: slurm.run(*now).returncode == 0, "Slurm takes the time")
        _, error = step.communicate()
        assert step.returncode != 0
        assert "nodectl: error: step " in error
    for one in (batch, job.job):
        slurm.wait_for_end(one)
        assert "JobState=TIMEOUT" in slurm.run("scontrol", "show", "job", one).stdout
    slurm.assert_clean()
    assert not _job_directories(slurm)


def test_steps_run_and_begin_while_slurms_controller_is_dead(user: User) -> None:
    step = user.popen("run", "-N3", "-n3", "sleep", "600", machine="n2")
    wait_until(lambda: len(user.sleeps()) == 3, "tasks sleep")
    (agents,) = agents_steps(user)
    user.bed.kill_controller(agents)
    for machine in ("head", *THREE):
        done = user.nodectl("run", "-N3", "-n3", "hostname", machine=machine)
        assert (done.returncode, sorted(done.stdout.split())) == (0, [*THREE]), done.stderr
    done = user.nodectl("bulk", "-n3", "echo", ":::", *map(str, range(20)))
    assert sorted(done.stdout.split(), key=int) == [*map(str, range(20))], done.stderr
    user.bed.boot_controller()
    assert agents_steps(user) == [agents]
    assert len(user.sleeps()) == 3
    os.kill(inner(step), signal.SIGTERM)
    step.communicate()
    assert user.nodectl("cluster", "stop", machine="n2").returncode == 0
