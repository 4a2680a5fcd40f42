"""MPI programs over nodes that have networks, names and memory of their own, made by the distribution's MPICH and Open
MPI.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.bed import Bed
from cluster.processes import inner
from cluster.user import User
from rootful.mpi_programs import MPICH, OPEN_MPI, compiled
from rootful.node import NOBODY


@pytest.fixture
def user(slurm: Bed) -> Iterator[User]:
    """Whose cluster is there, with two CPUs of each node."""
    with slurm.salloc("--ntasks-per-node=2", "--no-kill", nodes=4) as job:
        found = User(slurm, job)
        found.start("head")
        yield found


def _program(bed: Bed, name: str, compiler: str) -> str:
    """Where all nodes see it."""
    here = Path(compiled(name, bed.dir, compiler))
    place = bed.home(NOBODY) / here.name
    shutil.copy2(here, place)
    return str(place)


@pytest.mark.parametrize("compiler", [MPICH, OPEN_MPI])
def test_a_ring_a_sum_and_a_barrier_over_four_nodes(user: User, compiler: str) -> None:
    """That nothing has to be said for: the program is linked to the library of one or the other."""
    step = user.popen("run", "-N4", "-n8", _program(user.bed, "ring", compiler))
    assert step.stdout is not None
    assert step.stdout.readline() == "8 tasks on 4 nodes: 28 round, 28 of all\n"
    os.kill(inner(step), signal.SIGTERM)
    step.communicate()
    assert not user.processes("ring-")


@pytest.mark.parametrize(("mpi", "compiler"), [("pmi2", MPICH), ("pmix", OPEN_MPI)])
def test_mpi_abort_ends_the_step_on_all_nodes(user: User, mpi: str, compiler: str) -> None:
    done = user.nodectl("run", "-N4", "-n8", f"--mpi={mpi}", _program(user.bed, "ring", compiler), "abort")
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if "the step ends" in line]
    assert [line.rpartition("0: ")[2] for line in ours] == ["task 1 called MPI_Abort with code 7: the step ends"]
    assert not user.processes("ring-")


def test_open_mpis_tasks_end_by_themselves_and_leave_nothing(user: User) -> None:
    done = user.nodectl("run", "-N4", "-n8", _program(user.bed, "cpi", OPEN_MPI))
    assert (done.stdout, done.returncode) == ("8 tasks: pi is 3.141593\n", 0), done.stderr
    assert not [path for path in user.bed.files(NOBODY) if "nodectl-mpi-" in path]
