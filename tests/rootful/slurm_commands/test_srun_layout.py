"""Where srun puts tasks, which of its options exclude each other, and what it lists for debuggers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from rootful.jobs.machine import TURNS
from rootful.node import NOBODY, PATIENCE, running, wait_until
from rootful.slurm_commands.conftest import Cluster

EXCLUDED = "--hint has no effect beside"


def stopped(pid: str) -> bool:
    return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("*:*", "block:cyclic"),
        ("*:*:*", "block:cyclic:cyclic"),
        ("*:block:*", "block:block:block"),
        ("pack", "pack"),
        ("NoPack", "nopack"),
        ("*,pack", "block,pack"),
    ],
)
def test_a_distribution_is_told_with_the_defaults_it_asks_for(cluster: Cluster, given: str, told: str) -> None:
    show = "printenv SLURM_DISTRIBUTION"
    assert cluster.ok(f"srun -n1 -m '{given}' {show}") == f"{told}\n"
    assert cluster.ok(f"salloc -Q -n1 -m '{given}' srun {show}") == f"{told}\n"


@pytest.mark.parametrize(
    ("options", "tasks"),
    [("-B 1-1:2:1", 2), ("-B 1:1:1", 1), ("-c1 -B 1:2", 2), ("-c2 -B 1:1:1", 1), ("-B '*'", 1), ("-n1 -B 1:2", 1)],
)
def test_without_a_number_of_tasks_there_is_one_for_each_cpu_of_the_geometry(
    cluster: Cluster, options: str, tasks: int
) -> None:
    assert cluster.ok(f"salloc -Q -N1 --exclusive srun -O {options} echo x") == "x\n" * tasks


@pytest.mark.parametrize("command", ["srun -n1 {} true", "salloc -n1 {} true", "sbatch {} -o /dev/null --wrap true"])
@pytest.mark.parametrize("option", ["--threads-per-core=1", "--ntasks-per-core=1", "-B1"])
def test_who_gives_a_hint_beside_what_excludes_it_is_told(cluster: Cluster, command: str, option: str) -> None:
    beside = cluster.sh(command.format(f"--hint=nomultithread {option}"))
    assert (beside.returncode, beside.stderr.count(EXCLUDED)) == (0, 1), beside.stderr
    for words in ("--hint=nomultithread", option):
        alone = cluster.sh(command.format(words))
        assert (alone.returncode, EXCLUDED in alone.stderr) == (0, False), alone.stderr
    assert EXCLUDED not in cluster.sh(f"SLURM_HINT=nomultithread {command.format(option)}").stderr


def test_how_much_is_told_of_binding_excludes_no_hint(cluster: Cluster) -> None:
    assert EXCLUDED not in cluster.sh("srun -n1 --hint=nomultithread --cpu-bind=verbose true").stderr
    assert EXCLUDED in cluster.sh("srun -n1 --hint=nomultithread --cpu-bind=threads,verbose true").stderr
    ours = cluster.node.run("--hint=nomultithread", "--cpu-bind=threads", "true", user=NOBODY)
    assert ours.stderr == "nodectl: --hint has no effect beside --cpu-bind\n"


@pytest.mark.parametrize(
    ("words", "letter"), [("map_cpu:NaN", "N"), ("map_cpu:0x0", "x"), ("mask_cpu:NaN", "N"), ("mask_cpu:0x1g", "g")]
)
def test_the_letter_that_makes_a_cpu_no_number_is_told(cluster: Cluster, words: str, letter: str) -> None:
    done = cluster.sh(f"srun --cpu-bind=verbose,{words} true")
    number = words.partition(":")[2]
    assert done.returncode == 1
    told = f"srun: error: Failed to validate number: {number}, the offending character is {letter} "
    assert done.stderr.startswith(told), done.stderr


def test_geometry_of_a_job_is_shown(cluster: Cluster) -> None:
    job = cluster.ok("sbatch --parsable -H --threads-per-core=1 --ntasks-per-core=1 --wrap true").strip()
    shown = cluster.ok(f"scontrol show job {job}")
    assert "ReqB:S:C:T=0:0:*:1\n" in shown
    assert "NtasksPerN:B:S:C=0:0:*:1 " in shown


@pytest.mark.parametrize("command", ["srun {} true", "sbatch {} -o /dev/null --wrap true", "salloc {} true"])
def test_a_deadline_that_leaves_less_than_the_least_time_is_refused(cluster: Cluster, command: str) -> None:
    for words in ("--deadline now+1hour --time-min 120", "--begin now+300 --deadline now+600 --time-min 6",
                  "-t 5 --time-min 6"):  # fmt: skip
        done = cluster.sh(command.format(words))
        assert done.returncode == 1
        assert "error: Invalid time-min specification" in done.stderr
    done = cluster.sh(command.format("-t 5 --deadline now+1hour --time-min 5"))
    assert done.returncode == 0, done.stderr


def test_a_file_of_programs_that_leaves_a_task_without_one_is_called_invalid(cluster: Cluster) -> None:
    programs = cluster.file("programs", "0 true\n")
    done = cluster.sh(f"srun -n2 -O --multi-prog {programs}")
    assert done.returncode == 1
    assert re.search("Configuration file .* invalid: --multi-prog: task 1 has no program", done.stderr), done.stderr


def test_tasks_for_a_debugger_stop_before_their_programs_and_go_on_when_continued(cluster: Cluster) -> None:
    programs = cluster.file("programs", "0 sh -c 'echo %t' more\n1 hostname\n")
    process = subprocess.Popen(
        [str(cluster.bin / "srun"), "-n2", "-O", "--debugger-test", "--multi-prog", str(programs)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=str(cluster.node.scratch),
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
    )
    assert process.stderr is not None
    host = os.uname().nodename
    pids = []
    for task, program in enumerate(("sh", "hostname")):
        line = process.stderr.readline()
        found = re.fullmatch(rf"srun: task:{task} host:{host} pid:(\d+) executable:{program}\n", line)
        assert found, line
        pids.append(found[1])
    for pid in pids:
        wait_until(lambda pid=pid: stopped(pid), "the task stopped")
        os.kill(int(pid), signal.SIGCONT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, sorted(output.split()), errors) == (0, sorted(["0", host]), "")


def test_devices_of_a_step_are_shown_and_what_is_no_number_of_them_is_invalid() -> None:
    with running(**TURNS, gres=["Name=gpu File=/dev/null,/dev/zero"]) as node:
        cluster = Cluster(node)
        for words in ("gpu:", "gpu::", "gpu:tesla:", "gpu:tesla:many"):
            done = cluster.sh(f"srun --gres={words} true")
            assert (done.returncode, "Invalid generic resource" in done.stderr) == (1, True), done.stderr
        assert "JOB_GRES=gpu:2\n" in cluster.ok("srun --gres=gpu:2 sh -c 'scontrol -d show job $SLURM_JOB_ID'")
        shown = cluster.ok("srun --gres=gpu:2 sh -c 'scontrol show step $SLURM_JOB_ID.0'")
        assert re.search(r"TRES=cpu=\S*,gres/gpu=2\n", shown), shown
        shown = cluster.ok("srun sh -c 'scontrol show step $SLURM_JOB_ID.0'")
        assert "gres/gpu" not in shown
