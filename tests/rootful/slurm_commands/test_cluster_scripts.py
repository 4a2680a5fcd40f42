"""Scripts that were written for a cluster run unchanged, with Slurm's commands in PATH."""

from __future__ import annotations

import os
import re

import pytest

from rootful.mpi_programs import MPICH, OPEN_MPI, compiled
from rootful.node import wait_until
from rootful.slurm_commands.conftest import Cluster

HOST = os.uname().nodename


def test_an_array_writes_a_file_for_each_of_its_tasks(cluster: Cluster) -> None:
    cluster.file(
        "array.sh",
        "#!/bin/bash\n"
        "#SBATCH --job-name=sweep\n"
        "#SBATCH --array=1-3%2\n"
        "#SBATCH --output=%x_%A_%a.out\n"
        "#SBATCH --error=%x_%A_%a.err\n"
        "#SBATCH --partition=short\n"
        "#SBATCH --account=physics\n"
        "#SBATCH --mail-type=END\n"
        "#SBATCH -n 1 -t 10:00\n"
        'echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_JOB_ID among $SLURM_ARRAY_TASK_COUNT"\n'
        "srun echo step $SLURM_ARRAY_TASK_ID\n",
    )
    done = cluster.sh("sbatch array.sh")
    assert done.returncode == 0
    assert re.fullmatch(r"(sbatch: warning: no mail will tell of this job: .*\n)?", done.stderr)
    job = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
    assert job
    cluster.until_over()
    for index in (1, 2, 3):
        said = cluster.text(f"sweep_{job[1]}_{index}.out").splitlines()
        assert said == [f"task {index} of {job[1]} among 3", f"step {index}"]
    states = cluster.ok(f"sacct -n -X -P -o JobID,State,ExitCode -j {job[1]}").split()
    assert states == [f"{job[1]}_{index}|COMPLETED|0:0" for index in (1, 2, 3)]


def test_a_pipeline_waits_for_what_it_depends_on(cluster: Cluster) -> None:
    """One fails: afterok never runs, afternotok and afterany do, singletons go one behind the other."""
    cluster.file(
        "pipeline.sh",
        "#!/bin/bash\nset -e\n"
        "good=$(sbatch --parsable -o /dev/null --wrap 'echo first >>log')\n"
        "bad=$(sbatch --parsable -o /dev/null --dependency=afterok:$good --wrap 'echo second >>log; exit 3')\n"
        "sbatch -o /dev/null -d afterok:$bad --kill-on-invalid-dep=yes --wrap 'echo never >>log'\n"
        "sbatch -o /dev/null -d afternotok:$bad --wrap 'echo repaired >>log'\n"
        "last=$(sbatch --parsable -o /dev/null -J one -d afterany:$bad --wrap 'sleep 0.2; echo third >>log')\n"
        "sbatch -o /dev/null -J one -d singleton,afterany:$last -W --wrap 'echo fourth >>log'\n"
        "echo $bad >bad\n",
    )
    cluster.ok("./pipeline.sh")
    cluster.until_over()
    said = cluster.text("log").split()
    assert said[:2] == ["first", "second"]
    assert sorted(said) == ["first", "fourth", "repaired", "second", "third"]
    assert said.index("third") < said.index("fourth")
    assert cluster.ok(f"sacct -n -X -P -o State,ExitCode -j {cluster.text('bad')}") == "FAILED|3:0\n"


def test_steps_in_the_background_of_a_job_are_waited_for(cluster: Cluster) -> None:
    cluster.file(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -n 2 -J steps -o steps.out -e steps.err\n"
        'for i in 1 2 3 4; do srun -n1 --exact sh -c "echo step $i; exit 0" & done\nwait\n'
        "squeue -h -j $SLURM_JOB_ID -o %T\n"
        "squeue -h -s -j $SLURM_JOB_ID -o %i\n"
        "scontrol show job $SLURM_JOB_ID | grep -o 'JobState=[A-Z]*'\n",
    )
    job = cluster.ok("sbatch -W --parsable steps.sh").strip()
    said = cluster.text("steps.out").splitlines()
    assert sorted(said[:4]) == [f"step {i}" for i in (1, 2, 3, 4)]
    assert said[4:] == ["RUNNING", f"{job}.batch", "JobState=RUNNING"]
    steps = cluster.ok(f"sacct -n -P -o JobID -j {job}").split()
    assert steps == [job, f"{job}.batch", *(f"{job}.{number}" for number in range(4))]


def test_a_launcher_finds_its_ranks_and_the_first_host(cluster: Cluster) -> None:
    """What PyTorch's scripts do: MASTER_ADDR of the first name of the list, rank and size of the variables."""
    cluster.file(
        "train.sh",
        "#!/bin/bash\n#SBATCH --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --output=train.out\n"
        "nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )\n"
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_NODELIST" | head -n 1)\n'
        "export MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))\n"
        "export WORLD_SIZE=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE))\n"
        "echo ${#nodes[@]} ${nodes[0]}\n"
        "srun bash -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID $WORLD_SIZE $MASTER_ADDR'\n",
    )
    cluster.ok("sbatch --wait train.sh")
    said = cluster.text("train.out").splitlines()
    assert said[0] == f"1 {HOST}"
    assert sorted(said[1:]) == [f"{rank}/2 {rank} 0 2 {HOST}" for rank in (0, 1)]


@pytest.mark.parametrize("compiler", [MPICH, OPEN_MPI])
def test_an_mpi_job_finds_its_ranks_by_srun_and_by_mpiexec(cluster: Cluster, compiler: str) -> None:
    program = compiled("cpi", cluster.node.dir, compiler)
    mpiexec = "mpiexec.mpich" if compiler == MPICH else "mpiexec.openmpi"
    cluster.file(
        "mpi.sh",
        "#!/bin/bash\n#SBATCH -J mpi -N 1 --ntasks=2 -t 5 -o mpi.out -e mpi.err\nset -e\n"
        f"srun --mpi={'pmi2' if compiler == MPICH else 'pmix'} {program}\nsrun {program}\n{mpiexec} -n 2 {program}\n",
    )
    done = cluster.sh("sbatch --wait mpi.sh")
    assert done.returncode == 0, cluster.text("mpi.err")
    assert cluster.text("mpi.out") == "2 tasks: pi is 3.141593\n" * 3


def test_an_allocation_gives_its_tasks_to_srun(cluster: Cluster) -> None:
    done = cluster.sh("salloc -n2 srun hostname")
    assert (done.returncode, done.stdout) == (0, f"{HOST}\n{HOST}\n")
    granted, relinquished = done.stderr.splitlines()
    assert re.fullmatch(r"salloc: Granted job allocation \d+", granted)
    assert re.fullmatch(r"salloc: Relinquishing job allocation \d+", relinquished)
    job = relinquished.split()[-1]
    ended = [f"{job}|COMPLETED|0:0", f"{job}.extern|COMPLETED|0:0", f"{job}.0|COMPLETED|0:0"]
    assert cluster.ok(f"sacct -n -P -o JobID,State,ExitCode -j {job}").split() == ended


def test_the_exit_status_is_the_steps(cluster: Cluster) -> None:
    assert cluster.sh("srun sh -c 'exit 7'").returncode == 7
    done = cluster.sh("srun --no-such-option true")
    assert done.returncode == 255
    assert done.stderr.startswith("srun: ")
    assert "nodectl" not in done.stderr


def test_waiting_jobs_of_a_user_are_cancelled_and_running_ones_stay(cluster: Cluster) -> None:
    running = cluster.ok("sbatch --parsable --exclusive --wrap 'exec sleep 1000'").strip()
    waiting = cluster.ok("sbatch --parsable -J next --exclusive --wrap 'exec sleep 1000'").strip()
    wait_until(lambda: cluster.ok("squeue -h -t R -o %i") == f"{running}\n", "the first one runs")
    assert cluster.ok(f"squeue -h -j {waiting} -o '%t %r'").split()[0] == "PD"
    cluster.ok("scancel -u $USER --state=PENDING")
    wait_until(lambda: cluster.ok("squeue -h --me -o %i") == f"{running}\n", "the second one is gone")
    cluster.ok("scancel -n wrap")
    cluster.until_over()
    assert cluster.ok(f"squeue -h -j {running}") == ""  # over, but known
    assert cluster.ok(f"scancel {running}") == ""
