"""MPI programs over nodes that have networks, names and memory of their own, made by the distribution's MPICH."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.bed import Bed, inner
from cluster.user import User
from rootful.mpi_programs import compiled
from rootful.node import NOBODY


@pytest.fixture
def user(slurm: Bed) -> Iterator[User]:
    """Whose cluster is there, with two CPUs of each node."""
    with slurm.salloc("--ntasks-per-node=2", "--no-kill") as job:
        found = User(slurm, job)
        found.start("head")
        yield found


def _program(bed: Bed) -> str:
    """Where all nodes see it."""
    here = Path(compiled("ring", bed.dir))
    place = bed.home(NOBODY) / here.name
    shutil.copy2(here, place)
    return str(place)


def test_a_ring_a_sum_and_a_barrier_over_three_nodes(user: User) -> None:
    """That nothing has to be said for: the program is linked to MPICH."""
    step = user.popen("run", "-N3", "-n6", _program(user.bed))
    assert step.stdout is not None
    assert step.stdout.readline() == "6 tasks on 3 nodes: 15 round, 15 of all\n"
    os.kill(inner(step), signal.SIGTERM)
    step.communicate()
    assert not user.processes("ring-mpich")


def test_mpi_abort_ends_the_step_on_all_nodes(user: User) -> None:
    done = user.nodectl("run", "-N3", "-n6", "--mpi=pmi2", _program(user.bed), "abort")
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if "the step ends" in line]
    assert [line.rpartition("0: ")[2] for line in ours] == ["task 1 called MPI_Abort with code 7: the step ends"]
    assert not user.processes("ring-mpich")


def test_open_mpis_server_is_refused_over_several_nodes(user: User) -> None:
    done = user.nodectl("run", "-N3", "-n6", "--mpi=pmix", "true")
    assert done.returncode != 0
    assert "--mpi=pmix: it serves no step over several nodes, and this one has 3" in done.stderr
