"""The steps of a cluster beside srun's, measured where its user types: on a node of an allocation.

The agents are there.

usage: in_allocation.py ROUNDS; prints the rows as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.programs import TRUE, loops, spawn
from bench.rows import Row, in_turns
from nodectl.model.config import own_node

_COMMANDS = 10_000
_TURNS = 3
_OF_SRUN = 3.0  # seconds in each turn: some two hundred steps
_MORE = 5  # rounds of the quick ones for one of the others


def measured(rounds: int) -> list[Row]:
    """All rows."""
    nodectl, srun = _path_of("nodectl"), _path_of("srun")
    rows = [_many_commands(nodectl, srun)]
    # One of the two sizes would contradict it.
    plain = {name: value for name, value in os.environ.items() if name != "SLURM_NTASKS_PER_NODE"}
    for ntasks in (6, 24):
        words = ("--overcommit", "-N3", f"-n{ntasks}", TRUE)
        ours = spawn(nodectl, "run", *words, environment=plain)
        taken = in_turns(rounds, ours=ours, srun=spawn(srun, "--overlap", *words, environment=plain))
        rows.append(Row(f"nodectl run -N3 -n{ntasks} true / srun", taken["ours"], taken["srun"], "s", 0.3))
    with _own_node(nodectl) as socket:
        taken = in_turns(
            _MORE * rounds,
            cluster=spawn(nodectl, "run", "-N1", "-n1", TRUE),
            own=spawn(nodectl, "--socket", socket, "run", "-n1", TRUE, environment=_alone()),
        )
    rows.append(Row("a step of one task in the cluster / without one", taken["cluster"], taken["own"], "s", 1.5))
    rows.append(Row("what it takes longer in the cluster", 1000 * (taken["cluster"] - taken["own"]), 0, "ms", 5))
    return rows


def _many_commands(nodectl: str, srun: str) -> Row:
    """Rates: begin and end of `nodectl bulk` counted, and srun in as many loops as help it."""
    values = "".join(f"{number}\n" for number in range(_COMMANDS)).encode()
    step = spawn(srun, "--overlap", "-N1", "-n1", TRUE)
    ours, theirs = [], []
    for _ in range(_TURNS):
        start = time.perf_counter()
        subprocess.run([nodectl, "bulk", TRUE], input=values, stdout=subprocess.DEVNULL, check=True)
        ours.append(_COMMANDS / (time.perf_counter() - start))
        theirs.append(loops(step, _OF_SRUN) / _OF_SRUN)
    what = f"{_COMMANDS} x true a second on 3 nodes, nodectl bulk / srun"
    return Row(what, statistics.median(ours), statistics.median(theirs), "1/s", 10, more=True)


@contextlib.contextmanager
def _own_node(nodectl: str) -> Iterator[str]:
    """A node of the user's own, which knows of no allocation: its socket."""
    ready, told = os.pipe()
    environment = {**_alone(), "NODECTL_READY_FD": str(told)}
    with subprocess.Popen(
        [nodectl, "--user", "daemon"], env=environment, pass_fds=(told,), stderr=subprocess.DEVNULL
    ) as daemon:
        os.close(told)
        try:
            if os.read(ready, 1) != b"1":
                raise RuntimeError("nodectl --user daemon did not start")
            yield f"{own_node.runtime_dir()}/nodectl.sock"
        finally:
            os.close(ready)
            daemon.terminate()


def _alone() -> Mapping[str, str]:
    """The variables of a shell without an allocation."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}


def _path_of(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"no {name} in {os.environ['PATH']}")
    return path


if __name__ == "__main__":
    print(json.dumps([row.as_json() for row in measured(int(sys.argv[1]))]))
