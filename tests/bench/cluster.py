"""A cluster in an allocation of three nodes, of a Slurm that lasts for the measurement (tests/cluster)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.rows import Row
from cluster.bed import Bed
from cluster.user import User, install

_INSIDE = Path(__file__).with_name("in_allocation.py")
_LONGEST = 600  # seconds
_LEAST = 5  # rounds


def cluster(rounds: int) -> list[Row]:
    """Its rows beside srun's. Raises NoSlurm."""
    bed = Bed()
    try:
        bed.begin()
        with bed.salloc("--ntasks-per-node=2") as job:
            User(bed, job).start()
            path = f"{install(bed, job.user)}:{job.environment['PATH']}"
            words = [sys.executable, "-P", str(_INSIDE), str(max(rounds // 10, _LEAST))]
            done = job.run(*words, machine="n1", env={"PATH": path}, timeout=_LONGEST)
    finally:
        bed.end()
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [Row.of(told) for told in json.loads(done.stdout)]
