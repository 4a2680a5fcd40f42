"""A job that was given what another one held: its cgroup, on a machine whose kernel enforces limits."""

from __future__ import annotations

import pytest

from vm import service
from vm.service import CONFIG, UNIT, Sleeper
from vm.test_limits import MIB, read

CPUS = "nproc; grep Cpus_allowed_list /proc/self/status"


def cpus(text: str) -> set[int]:
    """Of a list as 0-1,4."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.all
def test_limits_grow_with_what_a_job_was_given_and_running_steps_keep_their_cpus() -> None:
    CONFIG.write_text('select_type = "select/cons_tres"\nover_subscribe = "no"\n')
    service.systemctl("restart", UNIT)
    step = Sleeper("alice", 0, "-n2", "--mem=200M")
    job, own = step.group.parent, step.group / "user"
    before = read(own, "cpuset.cpus")
    assert read(job, "cpuset.cpus") == before
    script = f"nodectl update $SLURM_JOB_ID NumNodes=0 && nodectl update {step.job} NumNodes=ALL"
    words = (f"--dependency=expand:{step.job}", "-n2", "--mem=100M", "sh", "-c", script)
    given = service.run("nodectl", "alloc", *words, user="alice")
    assert given.returncode == 0, given.stderr
    assert read(own, "cpuset.cpus") == before
    assert len(cpus(read(job, "cpuset.cpus"))) == 2 * len(cpus(before))
    for group in (job, own):
        assert [read(group, f"memory.{name}") for name in ("max", "high")] == [str(300 * MIB)] * 2
    service.systemctl("kill", "--signal=KILL", UNIT)
    service.is_active()
    another = ("nodectl", "run", f"--jobid={step.job}", "--exact", "-n1", "-c2", "--mem=250M", "sh", "-c", CPUS)
    done = service.run(*another, user="alice")
    assert done.returncode == 0, done.stderr
    count, allowed = done.stdout.splitlines()
    assert (count, cpus(allowed.split()[1])) == ("2", cpus(read(job, "cpuset.cpus")) - cpus(before))
    assert step.let_go()[0] == 0
