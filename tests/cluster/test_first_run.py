"""The first run over several nodes starts the cluster of its allocation: once, however many there are."""

from __future__ import annotations

import os
import pty

from cluster.bed import Bed
from cluster.machine import THREE
from cluster.user import User, install
from rootful.node import NOBODY

_LEADER = "cluster.leader"
_HOSTS = "".join(f"{name}\n" for name in THREE)


def agents_steps(user: User) -> list[str]:
    """Of the job's, those of agents."""
    told = user.bed.run("squeue", "--steps", "-h", f"--jobs={user.job.job}", "-o", "%j").stdout.splitlines()
    return [name for name in told if name.startswith("nodectl-")]


def test_a_run_over_several_nodes_has_its_cluster_which_stays(slurm: Bed) -> None:
    with slurm.salloc() as job:
        user = User(slurm, job)
        assert "no cluster runs here" in user.nodectl("cluster", "status").stderr
        for machine in ("head", "n2"):
            done = user.nodectl("run", "-N3", "-n3", "hostname", machine=machine)
            assert (done.returncode, "".join(sorted(done.stdout.splitlines(True))), done.stderr) == (0, _HOSTS, "")
        assert len(agents_steps(user)) == 1
        assert user.nodectl("cluster", "stop", machine="n3").returncode == 0


def test_many_at_one_time_on_all_machines_end_with_one_cluster(slurm: Bed) -> None:
    with slurm.salloc("--ntasks-per-node=2") as job:
        user = User(slurm, job)
        install(slurm, NOBODY)
        runs = [
            user.popen("run", "-N3", "-n3", "hostname", machine=one) for one in ("n2", "n3", "n1", "n2", "n1", "n3")
        ]
        told = [run.communicate() for run in runs]
        assert [run.returncode for run in runs] == [0] * len(runs), told
        assert ["".join(sorted(out.splitlines(True))) for out, _ in told] == [_HOSTS] * len(runs)
        assert (len(agents_steps(user)), len(user.processes(_LEADER))) == (1, 1)


def test_bulk_starts_it_too_and_nodectls_srun_is_not_taken_for_slurms(slurm: Bed) -> None:
    with slurm.salloc() as job:
        user = User(slurm, job)
        place = slurm.home(NOBODY) / "commands"
        assert user.nodectl("slurm-commands", str(place), machine="head").returncode == 0
        path = {"PATH": f"{place}:{install(slurm, NOBODY)}:{job.environment['PATH']}"}
        done = user.nodectl("bulk", "--nodes=3", "echo", ":::", "1", "2", env=path)
        assert (done.returncode, sorted(done.stdout.split())) == (0, ["1", "2"]), done.stderr
        done = job.run("srun", "-N3", "-n3", "hostname", machine="n1", env=path)
        assert "".join(sorted(done.stdout.splitlines(True))) == _HOSTS, done.stderr


def test_a_start_that_fails_is_refused_in_one_line_that_says_what_to_do(slurm: Bed) -> None:
    place = str(install(slurm, NOBODY).parent)
    with slurm.salloc() as job:
        assert slurm.run("mount", "-t", "tmpfs", "nothing", place, machine="n2").returncode == 0
        try:
            done = User(slurm, job).nodectl("run", "-N3", "true", machine="head")
        finally:
            slurm.run("umount", place, machine="n2")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert f"the cluster of job {job.job} could not be started: node n2: there is no nodectl in {place}/" in done.stderr
    assert "-> `nodectl cluster start` tells it of each node" in done.stderr


def test_it_is_said_on_a_terminal(slurm: Bed) -> None:
    with slurm.salloc() as job:
        ours, theirs = pty.openpty()
        run = User(slurm, job).popen("run", "-N3", "true", stderr=theirs)
        os.close(theirs)
        told = b""
        while not told.endswith(b"\n"):
            told += os.read(ours, 4096)
        assert told.decode() == (
            f"nodectl: starting the cluster of job {job.job} on n[1-3]; `nodectl cluster stop` ends it\r\n"
        )
        run.communicate()
        os.close(ours)
        assert run.returncode == 0
