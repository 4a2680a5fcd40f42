"""How fast nodectl is, beside what it stands on: every figure and its peer are measured in the same run, in turns.

    sudo ./dev bench [--rounds N] [--json FILE] [--slurm [--steps N] | --cluster | --million]

Prints a table and writes it as JSON. Ratios are what counts: absolute times are this machine's. With --slurm a Slurm
of one node is started for the time being, and srun is measured in the same run (slurm.py). With --cluster only a
cluster in an allocation of three nodes is measured, beside srun (cluster.py), with --million only the memory that a
million commands of `nodectl bulk` take (million.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import slurm
from bench.at_once import at_once
from bench.bulk import bulk
from bench.clients import CLIENTS, Client, children_of, service_of, throughput
from bench.cluster import cluster
from bench.confining import contained
from bench.floor import launch
from bench.jobs import jobs
from bench.large_machine import large_machine
from bench.launching import private_node, tasks
from bench.leader import leader
from bench.mesh import mesh
from bench.million import alone
from bench.programs import TRUE, lean_fork_exec, spawn
from bench.queueing import queueing
from bench.rows import Row, in_turns, show
from bench.selecting import selecting
from rootful.native import native
from rootful.node import Node
from slurm.packages import NoSlurm

MANY = 32
STACKED = 50
IDLE = 5  # seconds without a step, after which a service is idle
USUAL: dict[str, object] = {"warm_runner_time": 3}  # what a service has, and tests have not


def in_memory() -> str:
    """Where a service's files of running steps lie: /run, which every systemd machine has in memory; some containers
    do not.
    """
    tmpfs = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "tmpfs"}
    return "/run" if "/run" in tmpfs or "/dev/shm" not in tmpfs else "/dev/shm"


def pipe_speed(words: list[str], size: int) -> float:
    """Seconds until `size` bytes have come out of a command's stdout."""
    start = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        got = 0
        while chunk := os.read(process.stdout.fileno(), 1 << 20):
            got += len(chunk)
    if got != size:
        raise RuntimeError(f"{got} bytes instead of {size}")
    return time.perf_counter() - start


def pss(pid: int) -> float:
    """Proportional memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def memory(node: Node, rows: list[Row]) -> None:
    """PSS of the idle service and of one stepd that waits for its task."""
    assert node.daemon is not None
    time.sleep(IDLE)
    service = [node.daemon.pid, *children_of(node.daemon.pid)]
    rows.append(Row("idle service, PSS", sum(map(pss, service)), 0, "MiB", 15))
    everyone = sum(map(pss, service_of(node)))
    rows.append(Row("idle service with sessions and waiting runners, PSS", everyone, 0, "MiB", 20))
    waiting = node.popen("sleep", "5")
    time.sleep(1)
    stepds = [pid for pid, name in node.processes() if name.startswith("stepd")]
    rows.append(Row("one stepd, PSS", max(map(pss, stepds)), 0, "MiB", 4.5))
    waiting.terminate()
    waiting.wait()


def stacked(rounds: int, runtime_dir: Path, plain: Client, rows: list[Row]) -> None:
    """What compiled SPANK plugins that do nothing cost a step: a stack of them in turns with the node of `plain`, which
    has none, and one of them. Hooks in the stepd and in the task, from its start to its end.
    """
    node = Node()
    node.configure(runtime_dir=str(runtime_dir))
    try:
        for number in range(STACKED):
            native(node, f"idle{number}", init="", task_init="", exit="")
        node.plugstack("".join(f"required idle{number}.so\n" for number in range(STACKED)))
        full = Client(str(node.start().socket))
        taken = in_turns(rounds, full=full.step, none=plain.step)
        node.plugstack("required idle0.so\n")
        single = in_turns(rounds, step=full.step, spawn=spawn(TRUE))
    finally:
        node.close()
    rows.append(Row("a step with one compiled SPANK plugin / posix_spawn", single["step"], single["spawn"], "s", 5))
    more = (taken["full"] - taken["none"]) * 1000
    rows.append(Row(f"{STACKED} compiled SPANK plugins, a step more than none", more, 0, "ms", 1.5))


def steps(rounds: int, seconds: float, nodes: tuple[Node, Node], run: list[str]) -> list[Row]:
    """One step after the other, and many at a time. `nodes`: one that traces, one that does not; `run` are the words of
    the command for the first.
    """
    traced, plain = nodes
    one, other = Client(str(traced.socket)), Client(str(plain.socket))
    python = str(Path(sys.executable).resolve())
    taken = in_turns(
        rounds,
        spawn=spawn(TRUE),
        python=spawn(python, "-I", "-S", "-c", "pass"),
        step=one.step,
        untraced=other.step,
        run=spawn(*run, TRUE),
    )
    many = in_turns(max(rounds // 10, 5), step=one.step, many=lambda: one.step(1 + MANY))
    fork = lean_fork_exec(rounds)
    together = throughput(traced, seconds)
    return [
        Row("one step over the socket / posix_spawn + wait", taken["step"], taken["spawn"], "s", 2.5),
        Row("nodectl run /bin/true / python3 -I -S -c pass", taken["run"], taken["python"], "s", 1.8),
        Row("one task more / fork + exec of a lean Python", (many["many"] - many["step"]) / MANY, fork, "s", 3),
        *tasks(rounds, one),
        Row("one step traced / not traced", taken["step"], taken["untraced"], "s", 1.05),
        Row(f"steps a second, {CLIENTS} clients", together.a_second, 0, "1/s", 800, more=True),
        Row(f"CPU of one step, {CLIENTS} clients, all processes", 1000 * together.cpu, 0, "ms", 2.2),
    ]


def streams(run: list[str]) -> Row:
    """What a task writes, beside a pipe."""
    size = 512 << 20
    copy = ["dd", "if=/dev/zero", "bs=1M", f"count={size >> 20}", "status=none"]
    speed = in_turns(3, ours=lambda: pipe_speed([*run, *copy], size), peer=lambda: pipe_speed(copy, size))
    return Row("512 MiB of a task's stdout / a pipe", speed["ours"], speed["peer"], "s", 1.25)


def measure(rounds: int, seconds: float, steps_of_srun: int, slurms: slurm.Slurm | None) -> list[Row]:
    """The whole table."""
    traced, plain = Node(**USUAL), Node(**USUAL, trace=False)
    memory_dir = Path(tempfile.mkdtemp(prefix="nodectl-bench-", dir=in_memory()))
    memory_dir.chmod(0o755)
    traced.configure(runtime_dir=str(memory_dir / "traced"))
    plain.configure(runtime_dir=str(memory_dir / "plain"))
    command = str(Path(sys.executable).parent / "nodectl")
    try:
        traced.start()
        plain.start()
        run = [command, "--socket", str(traced.socket), "run"]
        rows = steps(rounds, seconds, (traced, plain), run)
        one = Client(str(traced.socket))
        rows.append(private_node(max(rounds // 20, 5), memory_dir / "private", command))
        rows.append(streams(run))
        rows += at_once(max(rounds // 20, 5), run)
        rows.append(launch(rounds, traced.base))
        rows += bulk(memory_dir, run[:-1], traced.base)
        stacked(rounds, memory_dir / "stacked", one, rows)
        rows += contained(rounds, memory_dir, one, run)
        memory(traced, rows)
        rows += jobs(max(rounds // 4, 5), memory_dir / "jobs", command)
        if slurms is not None:
            rows += slurm.beside_srun(max(rounds // 10, 5), seconds, steps_of_srun, run, slurms)
        rows += large_machine(max(rounds // 10, 5))
        rows += selecting(max(rounds // 20, 5))
        rows += queueing()
        rows += mesh()
        rows += leader()
    finally:
        traced.close()
        plain.close()
        shutil.rmtree(memory_dir)
    return rows


def main() -> int:
    """Measures, prints, writes; 0 even when a goal is missed: a busy machine is no failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", default="bench.json")
    parser.add_argument(
        "--cluster", action="store_true", help="only a cluster in an allocation of Slurm's, beside srun"
    )
    parser.add_argument("--million", action="store_true", help="only a million commands of bulk: what they take")
    parser.add_argument("--slurm", action="store_true", help="srun, too: Debian's packages are fetched for it")
    parser.add_argument("--steps", type=int, default=600, help="with --slurm: so many steps in one allocation")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: needs root", file=sys.stderr)
        return 1
    assert threading.active_count() == 1
    try:
        if arguments.cluster:
            rows = cluster(arguments.rounds)
        elif arguments.million:
            rows = alone(Path(sys.executable).parent / "nodectl")
        else:
            with slurm.running() if arguments.slurm else contextlib.nullcontext() as slurms:
                rows = measure(arguments.rounds, arguments.seconds, arguments.steps, slurms)
    except NoSlurm as error:
        print(f"bench: there is no Slurm: {error}", file=sys.stderr)
        return 1
    show(rows)
    load = os.getloadavg()
    print(f"load of the last 1, 5 and 15 minutes: {load[0]:.1f} {load[1]:.1f} {load[2]:.1f}, on {os.cpu_count()} CPUs")
    Path(arguments.json).write_text(
        json.dumps(
            {
                "cpus": os.cpu_count(),
                "kernel": os.uname().release,
                "load": load,
                "rows": [row.as_json() for row in rows],
            },
            indent=1,
        ),
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
