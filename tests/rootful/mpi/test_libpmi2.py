"""Slurm's own PMI-2 library, as Debian has it, asks the server of --mpi=pmi2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from packages import Packages
from rootful.node import NOBODY, Node

pytestmark = pytest.mark.packages
SOURCE = Path(__file__).with_name("libpmi2.c")


def test_a_program_of_slurms_pmi_2_finds_the_others(served: Node, packages: Packages) -> None:
    (library,) = packages.root.glob("usr/lib/*/libpmi2.so.0")
    own = served.dir / library.name
    own.write_bytes(library.read_bytes())
    program = served.dir / "libpmi2"
    subprocess.run(["cc", f"-I{packages.root}/usr/include", "-o", program, SOURCE, own], check=True)
    done = served.run("-n3", "--mpi=pmi2", str(program), user=NOBODY, env={"LD_LIBRARY_PATH": str(served.dir)})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{rank} of 3: of {(rank + 1) % 3}; and more = {(rank + 1) % 3}, (vector,(0,1,3)), memory" for rank in range(3)
    ]
