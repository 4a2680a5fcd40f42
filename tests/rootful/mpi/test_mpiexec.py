"""The mpiexec of MPICH and of Open MPI in a step, in a script and in an allocation: they start their ranks there."""

from __future__ import annotations

import pytest

from needs import need
from rootful.mpi_programs import MPICH, OPEN_MPI, compiled
from rootful.node import NOBODY, Node

TWO = "2 tasks: pi is 3.141593\n"
BOTH = pytest.mark.parametrize("compiler", [MPICH, OPEN_MPI])


def mpiexec(compiler: str) -> str:
    name = compiler.replace("mpicc", "mpiexec")
    need(name)
    return name


@BOTH
def test_ranks_start_in_a_step_of_one_task(served: Node, compiler: str) -> None:
    program = compiled("cpi", served.dir, compiler)
    done = served.run("-n1", "-c2", mpiexec(compiler), "-n", "2", program, user=NOBODY, env={"HOME": "/tmp"})
    assert (done.stdout, done.returncode) == (TWO, 0), done.stderr


@BOTH
def test_ranks_start_in_an_allocation(served: Node, compiler: str) -> None:
    program = compiled("cpi", served.dir, compiler)
    done = served.nodectl("alloc", "-n2", mpiexec(compiler), "-n", "2", program, user=NOBODY, env={"HOME": "/tmp"})
    assert (done.stdout, done.returncode) == (TWO, 0), done.stderr


@BOTH
def test_ranks_start_in_a_script(served: Node, compiler: str) -> None:
    program = compiled("cpi", served.dir, compiler)
    script = served.scratch / f"{compiler}.sh"
    script.write_text(f"#!/bin/sh\nHOME=/tmp {mpiexec(compiler)} -n 2 {program}\n", encoding="utf-8")
    output = served.scratch / f"{compiler}.out"
    done = served.nodectl("submit", "--wait", "-n2", "-o", str(output), str(script), user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert output.read_text() == TWO


def test_a_users_own_choice_of_a_launcher_stays(served: Node) -> None:
    done = served.run("sh", "-c", "echo $HYDRA_LAUNCHER $OMPI_MCA_plm", user=NOBODY, env={"HYDRA_LAUNCHER": "ssh"})
    assert done.stdout == "ssh ^slurm\n"
