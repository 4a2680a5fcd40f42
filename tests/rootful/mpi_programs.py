"""MPI programs, compiled where the distribution's MPICH and Open MPI are installed (`./dev test` installs them)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from needs import need

SOURCES = Path(__file__).parent / "mpi"
MPICH, OPEN_MPI = "mpicc.mpich", "mpicc.openmpi"


def compiled(name: str, directory: Path, compiler: str = MPICH) -> str:
    """The path of the program that is made of `name`.c; skips the test where nothing can make it."""
    need(compiler)
    program = directory / f"{name}-{compiler.rpartition('.')[2]}"
    if not program.exists():
        made = program.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O1", "-o", made, SOURCES / f"{name}.c"], check=True)
        made.rename(program)
    return str(program)
