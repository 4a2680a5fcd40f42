"""What srun says by its own name: the lines that scripts and Slurm's own tests wait for."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from rootful.node import NOBODY, PATIENCE, wait_until
from rootful.slurm_commands.conftest import Cluster

HOST = os.uname().nodename
ALLOCATE = "Unable to allocate resources"


def test_verbose_tells_job_and_step(cluster: Cluster) -> None:
    told = cluster.sh("srun -v -n2 true").stderr
    job = re.search(r"^srun: jobid (\d+): nodes\(1\):", told, re.MULTILINE)
    assert job, told
    assert f"srun: launching StepId={job[1]}.0 on host {HOST}, 2 tasks: 0-1\n" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("-C no_such_feature", "Unable to allocate resources: Invalid feature specification"),
        ("--mem=99999999", "Unable to allocate resources: Requested node configuration is not available"),
        ("-N 9", "Unable to allocate resources: Requested node configuration is not available"),
    ],
)
def test_what_the_machine_does_not_have_is_refused_in_sruns_words(cluster: Cluster, options: str, told: str) -> None:
    done = cluster.sh(f"srun {options} true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"srun: error: {told}")
    batch = cluster.sh(f"sbatch {options} --wrap true")
    assert batch.returncode == 1
    assert batch.stderr.startswith(f"sbatch: error: {told.replace(ALLOCATE, 'Batch job submission failed')}")
    allocation = cluster.sh(f"salloc {options} true")
    assert allocation.stderr.startswith(f"salloc: error: {told}")


@pytest.mark.parametrize("command", ["srun --test-only true", "sbatch --test-only --wrap true"])
def test_when_it_would_start_is_told_as_slurm_tells_it(cluster: Cluster, command: str) -> None:
    name = command.split(maxsplit=1)[0]
    told = cluster.sh(command).stderr
    assert re.fullmatch(
        rf"{name}: Job [1-9]\d* to start at [-\dT:]+ using \d+ processors on nodes {HOST} in partition local\n", told
    )
    refused = cluster.sh(command.replace("--test-only", "--test-only -N 9"))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"{name}: error: allocation failure: ")


def test_help_and_usage_are_sruns(cluster: Cluster) -> None:
    assert cluster.ok("srun --usage").startswith("Usage: srun [OPTIONS] executable")
    text = cluster.ok("srun --help")
    assert "Usage: srun" in text
    assert "\nParallel run options:\n" in text
    assert "\nConstraint options:\n" in text
    assert cluster.ok("sbatch --usage").startswith("Usage: sbatch [OPTIONS] [SCRIPT")
    assert "\nConsumable resources related options:\n" in cluster.ok("salloc --help")


def test_interrupts_are_told_as_srun_tells_them(cluster: Cluster) -> None:
    """The first shows how the tasks are; the second behind it ends the step."""
    marker = cluster.node.scratch / "ready"
    process = subprocess.Popen(
        [str(cluster.bin / "srun"), "sh", "-c", f"echo there >{marker}; exec sleep 1000"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": f"{cluster.bin}:/usr/bin:/bin"},
        cwd=str(cluster.node.scratch),
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
    )
    assert process.stderr is not None
    wait_until(lambda: marker.exists() and marker.read_text(encoding="utf-8") != "", "the task runs")
    process.send_signal(signal.SIGINT)
    first = process.stderr.readline()
    assert first == "srun: interrupt (one more within 1 sec to abort)\n"
    assert re.fullmatch(r"srun: StepId=\d+\.0 task 0: running\n", process.stderr.readline())
    while process.poll() is None:  # two that come within a second of each other, however slow the machine is
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            continue
    rest = process.communicate(timeout=PATIENCE)[1]
    assert "srun: forcing job termination\n" in rest
