"""A cluster in a job to which Slurm gave GPUs: files, which Slurm takes for devices."""

from __future__ import annotations

import pytest

from cluster.bed import Bed
from cluster.user import User

_SEEN = ("sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES")


def seen(user: User, *words: str) -> list[str]:
    done = user.nodectl("run", *words, *_SEEN)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("option", ["--gpus=4", "--gpus-per-task=1"])
def test_steps_have_the_gpus_that_slurm_gave_the_job(slurm: Bed, option: str) -> None:
    """Also where it would give a step of one task a node fewer."""
    by_task = "task" in option
    with slurm.salloc("--ntasks-per-node=2", option, nodes=2) as job:
        user = User(slurm, job)
        user.start("head")
        each = [f"{node} {gpu}" for node in ("n1", "n2") for gpu in (("0", "1") if by_task else ("0,1", "0,1"))]
        assert seen(user) == each
        assert seen(user, "-N1", "-n1", "-wn2") == (["n2 0"] if by_task else ["n2 0,1"])
        assert seen(user, "-N2", "-n2", "--gpus=2") == ["n1 0", "n2 0"]


def test_agents_leave_them_to_slurms_own_steps(slurm: Bed) -> None:
    with slurm.salloc("--gres=gpu:2", nodes=1) as job:
        user = User(slurm, job)
        user.start("head")
        assert seen(user) == ["n1 0,1"]
        assert job.run("srun", "-n1", *_SEEN).stdout.split() == ["n1", "0,1"]


def test_a_job_without_gpus_has_none(slurm: Bed) -> None:
    with slurm.salloc(nodes=2) as job:
        user = User(slurm, job)
        user.start("head")
        assert seen(user) == ["n1", "n2"]
        done = user.nodectl("run", "-n1", "--gpus=1", "true")
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
