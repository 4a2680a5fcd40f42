"""The bed itself: what the other tests of this folder take for a cluster is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cluster.bed import Bed
from cluster.machine import ADDRESSES, NODES
from cluster.processes import kill
from rootful.node import NOBODY, OTHER, wait_until

# Agents of earlier tests leave their empty directory.
_WHO = "echo $(hostname) $(id -un) $SLURM_NODEID; ls -A /tmp | grep -v '^nodectl-'"


def test_srun_reaches_each_node_as_the_user(slurm: Bed) -> None:
    with slurm.salloc(nodes=len(NODES), user=OTHER) as job:
        done = job.run("srun", "-l", "sh", "-c", _WHO)
    assert sorted(done.stdout.splitlines()) == [f"{n}: {node} {OTHER.pw_name} {n}" for n, node in enumerate(NODES)]


def test_a_script_runs_on_the_first_of_its_nodes(slurm: Bed) -> None:
    out = slurm.home(NOBODY) / "out"
    slurm.wait_for_end(slurm.sbatch("#!/bin/sh\nhostname\nsrun hostname\n", "-N2", f"--output={out}"))
    first, *rest = out.read_text().splitlines()
    assert (first, sorted(rest)) == ("n1", ["n1", "n2"])


def test_nodes_hear_each_other_until_a_cable_is_cut(slurm: Bed) -> None:
    ask = "import socket, sys; socket.create_connection((sys.argv[1], 6818), 2)"
    words = [sys.executable, "-I", "-c", ask, ADDRESSES["n2"]]
    assert slurm.run(*words, machine="n1").returncode == 0
    slurm.cut("n2")
    assert slurm.run(*words, machine="n1").returncode == 1
    slurm.mend("n2")
    wait_until(lambda: slurm.run(*words, machine="n1").returncode == 0, "n2 is there again")


def test_a_node_that_is_killed_takes_all_with_it_that_runs_there(slurm: Bed) -> None:
    with slurm.salloc("--no-kill", nodes=len(NODES), user=NOBODY) as job:
        step = job.popen("srun", "--no-kill", "sh", "-c", "hostname; exec sleep 600")
        wait_until(lambda: len(_sleeping(slurm)) == len(NODES), "tasks sleep on all nodes")
        slurm.kill("n3")
        wait_until(lambda: len(_sleeping(slurm)) < len(NODES), "that of n3 is gone")
        kill(step)
        step.communicate()
        slurm.boot("n3")
        slurm.scancel(job.job)


def test_nothing_is_left_of_a_job_that_was_cancelled(slurm: Bed) -> None:
    job = slurm.sbatch("#!/bin/sh\nsrun sleep 600\n", f"-N{len(NODES)}", "--output=/dev/null")
    wait_until(lambda: len(_sleeping(slurm)) == len(NODES), "tasks sleep on all nodes")
    slurm.scancel(job)
    slurm.assert_clean()


def test_kill_9_of_the_run_leaves_nothing(tmp_path: Path) -> None:
    """Of a bed of its own, whose Slurm need not have begun."""
    begin = (
        "import sys; sys.path.insert(0, sys.argv[1]); from cluster import bed; bed.fetch = lambda *_: None; "
        "made = bed.Bed(); print(made.dir, flush=True); made.begin()"
    )
    words = [sys.executable, "-P", "-c", begin, str(Path(__file__).resolve().parent.parent)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        assert run.stdout is not None
        directory = Path(run.stdout.readline().strip())
        wait_until((directory / "lock").exists, "the head is started")
        run.kill()
    wait_until(lambda: not directory.exists(), "its directory is gone")
    assert not [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if _was_given(pid, directory)]


def _sleeping(slurm: Bed) -> list[str]:
    return [words for words in slurm.processes(NOBODY).values() if words in ("sleep 600", "/usr/bin/sleep 600")]


def _was_given(pid: str, directory: Path) -> bool:
    try:
        return str(directory) in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
