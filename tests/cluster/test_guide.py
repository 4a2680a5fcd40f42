"""The script of docs/guides/clusters.md as a new user runs it, who has nothing of nodectl but a virtual environment in
the home: what it prints, and how its job ends.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from cluster.bed import Bed
from cluster.machine import THREE
from cluster.user import install
from rootful.mpi_programs import compiled
from rootful.node import NOBODY
from vm import pages

_GUIDE = "docs/guides/clusters.md"
_COMMANDS = 5000
_PREPARE = '#!/bin/sh\necho "$1 $SLURMD_NODENAME"\n'


def _run(slurm: Bed, script: str, *options: str) -> list[str]:
    """The lines that a job has printed which ended well; nothing else has been said."""
    home = slurm.home(NOBODY)
    (home / "prepare").write_text(_PREPARE)
    (home / "prepare").chmod(0o755)
    shutil.copy2(Path(compiled("ring", slurm.dir)), home / "solver")
    for left in home.glob("left.*"):
        left.unlink()
    out = home / "out"
    job = slurm.sbatch(script, "--ntasks-per-node=2", f"--output={out}", "--export=ALL,RING_ENDS=yes", *options)
    slurm.wait_for_end(job)
    told = out.read_text().splitlines()
    assert "ExitCode=0:0" in slurm.run("scontrol", "show", "job", job).stdout, told[-10:]
    return told


def test_three_lines_more_run_thousands_of_commands_and_an_mpi_program_over_all_nodes(slurm: Bed) -> None:
    install(slurm, NOBODY)
    *rows, ring = _run(slurm, pages.fenced(_GUIDE, "sh"))
    assert ring == "6 tasks on 3 nodes: 15 round, 15 of all"
    numbers, nodes = zip(*(row.split() for row in rows), strict=True)
    assert sorted(map(int, numbers)) == list(range(1, _COMMANDS + 1))
    assert sorted(Counter(nodes)) == list(THREE)


def test_lines_of_srun_stay_as_they_are(slurm: Bed) -> None:
    """With nodectl's commands before Slurm's in PATH; many first ones at a time start one cluster."""
    programs = install(slurm, NOBODY)
    made = slurm.run(str(programs / "nodectl"), "slurm-commands", str(programs / "slurm"), user=NOBODY)
    assert made.returncode == 0, made.stderr
    script = (
        "#!/bin/sh\n#SBATCH --nodes=3\n. ~/nodectl/bin/activate\nPATH=~/nodectl/bin/slurm:$PATH\n"
        "for i in 1 2 3 4 5 6 7 8; do srun -N1 -n1 ./prepare $i & done\nwait\nsrun ./solver\n"
    )
    *rows, ring = _run(slurm, script)
    assert ring == "6 tasks on 3 nodes: 15 round, 15 of all"
    assert sorted(int(row.split()[0]) for row in rows) == list(range(1, 9))
