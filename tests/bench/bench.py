"""How fast nodectl is, beside what it stands on: every figure and its peer are measured in the same run, in turns.

    sudo ./dev bench [--rounds N] [--json FILE]

Prints a table and writes it as JSON. Ratios are what counts: absolute times are this machine's. Where Slurm is
installed and answers, srun is measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.jobs import jobs
from bench.large_machine import large_machine
from bench.queueing import queueing
from bench.rows import Row, in_turns
from bench.selecting import selecting
from nodectl.client.command import GlobalOptions
from nodectl.client.session import Session
from rootful.native import native
from rootful.node import Node

TRUE = "/bin/true"
CLIENTS = 8
MANY = 32
STACKED = 50


def spawn(*words: str) -> Callable[[], None]:
    """posix_spawn and wait; fails unless the program ends with 0."""

    def do() -> None:
        pid = os.posix_spawn(words[0], words, os.environ)
        if os.waitpid(pid, 0)[1] != 0:
            raise RuntimeError(f"failed: {words}")

    return do


# What "a lean Python" can do: fork and exec, from a process that has imported nothing to speak of.
LEAN = """
import os, sys, time
def once():
    pid = os.fork()
    if pid == 0:
        os.execv(sys.argv[1], [sys.argv[1]])
    os.waitpid(pid, 0)
once()
taken = []
for _ in range(int(sys.argv[2])):
    start = time.perf_counter(); once(); taken.append(time.perf_counter() - start)
print(sorted(taken)[len(taken) // 2])
"""


def lean_fork_exec(rounds: int) -> float:
    """Seconds of a fork and exec from a lean Python."""
    words = [sys.executable, "-I", "-S", "-c", LEAN, TRUE, str(rounds)]
    return float(subprocess.run(words, capture_output=True, check=True, text=True).stdout)


class Client:
    """A client that stays connected and asks for one step after the other."""

    def __init__(self, socket_path: str) -> None:
        settings = GlobalOptions()
        settings.socket, settings.config = socket_path, None
        self._session = Session(settings)

    def step(self, ntasks: int = 1) -> None:
        """One step of so many tasks, from the request to the event that ends it."""
        request = {"argv": [TRUE], "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "ntasks": ntasks}
        if ntasks != 1:
            request["stdin"] = "none"  # as `nodectl run` says where nothing would come
        _, _, events = self._session.launch(request)
        record = None
        while record is None:
            messages, alive = events.read()
            told = [message["parameters"]["event"] for message in messages]  # type: ignore[index]
            record = next((event["record"] for event in told if event["event"] == "end"), None)
            if record is None and not alive:
                raise RuntimeError("the step runner went away")
        events.close()
        if record["exit_status"] != 0:
            raise RuntimeError(record["reason"])


def in_memory() -> str:
    """Where a service's files of running steps lie: /run, which every systemd machine has in memory; some containers
    do not.
    """
    tmpfs = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "tmpfs"}
    return "/run" if "/run" in tmpfs or "/dev/shm" not in tmpfs else "/dev/shm"


def throughput(socket_path: str, seconds: float) -> float:
    """Steps a second from several clients, each in a process of its own."""
    end = time.monotonic() + seconds
    counts = []
    for _ in range(CLIENTS):
        reader, writer = os.pipe()
        if os.fork() == 0:
            one, count = Client(socket_path), 0
            while time.monotonic() < end:
                one.step()
                count += 1
            os.write(writer, str(count).encode())
            os._exit(0)
        os.close(writer)
        counts.append(reader)
    total = sum(int(os.read(reader, 64)) for reader in counts)
    for _ in range(CLIENTS):
        os.wait()
    return total / seconds


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


def children_of(pid: int) -> list[int]:
    """Child processes."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def memory(node: Node, rows: list[Row]) -> None:
    """PSS of the idle service and of one stepd that waits for its task."""
    assert node.daemon is not None
    service = [node.daemon.pid, *children_of(node.daemon.pid)]
    rows.append(Row("idle service, PSS", sum(map(pss, service)), 0, "MiB", 45))
    waiting = node.popen("sleep", "5")
    time.sleep(1)
    stepds = [pid for pid, name in node.processes() if name.startswith("stepd")]
    rows.append(Row("one stepd, PSS", max(map(pss, stepds)), 0, "MiB", 6))
    waiting.terminate()
    waiting.wait()


def stacked(rounds: int, runtime_dir: Path, plain: Client, rows: list[Row]) -> None:
    """What compiled SPANK plugins that do nothing cost a step: a stack of them in turns with the node of `plain`, which
    has none. Hooks in the stepd and in the task, from its start to its end.
    """
    node = Node()
    node.configure(runtime_dir=str(runtime_dir))
    try:
        for number in range(STACKED):
            native(node, f"idle{number}", init="", task_init="", exit="")
        node.plugstack("".join(f"required idle{number}.so\n" for number in range(STACKED)))
        full = Client(str(node.start().socket))
        taken = in_turns(rounds, full=full.step, none=plain.step)
    finally:
        node.close()
    more = (taken["full"] - taken["none"]) * 1000
    rows.append(Row(f"{STACKED} compiled SPANK plugins, a step more than none", more, 0, "ms", 1))


def contained(rounds: int, runtime_dir: Path, plain: Client, rows: list[Row]) -> None:
    """What a job container costs a step, in turns with the node of `plain`; its removal is not waited for."""
    node = Node(runtime_dir=str(runtime_dir), job_container_type="job_container/namespace")
    node.configure(container_base_path=str(node.dir / "containers"))  # beside no directory that the container hides
    try:
        one = Client(str(node.start().socket))
        taken = in_turns(rounds, plain=plain.step, contained=one.step)
        rows.append(Row("a job container, added to a step", 1000 * (taken["contained"] - taken["plain"]), 0, "ms", 4))
    finally:
        node.close()


def srun(rounds: int, rows: list[Row], step: float) -> None:
    """Slurm beside us, where it is installed and has a node that answers."""
    if (
        shutil.which("srun") is None
        or subprocess.run(["srun", "-n1", "true"], capture_output=True, check=False).returncode
    ):
        print("srun: not installed here, or no node answers: not measured")
        return
    taken = in_turns(rounds, srun=spawn(shutil.which("srun") or "", "-n1", TRUE))
    rows.append(Row("one step, against srun -n1", step, taken["srun"], "s", 0.5))


def measure(rounds: int, seconds: float) -> list[Row]:
    """The whole table."""
    rows: list[Row] = []
    traced, plain = Node(), Node(trace=False)
    memory_dir = Path(tempfile.mkdtemp(prefix="nodectl-bench-", dir=in_memory()))
    memory_dir.chmod(0o755)
    traced.configure(runtime_dir=str(memory_dir / "traced"))
    plain.configure(runtime_dir=str(memory_dir / "plain"))
    try:
        traced.start()
        plain.start()
        one, other = Client(str(traced.socket)), Client(str(plain.socket))
        command = shutil.which("nodectl", path=str(Path(sys.executable).parent)) or ""
        words = (
            [command, "--socket", str(traced.socket), "run", TRUE]
            if command
            else [*traced.command()[:-2], "--socket", str(traced.socket), "run", TRUE]
        )
        python = str(Path(sys.executable).resolve())
        taken = in_turns(
            rounds,
            spawn=spawn(TRUE),
            python=spawn(python, "-I", "-S", "-c", "pass"),
            step=one.step,
            untraced=other.step,
            run=spawn(*words),
        )
        many = in_turns(max(rounds // 10, 5), step=one.step, many=lambda: one.step(1 + MANY))
        fork = lean_fork_exec(rounds)
        rows += [
            Row("one step over the socket / posix_spawn + wait", taken["step"], taken["spawn"], "s", 8),
            Row("nodectl run /bin/true / python3 -I -S -c pass", taken["run"], taken["python"], "s", 2.5),
            Row("one task more / fork + exec of a lean Python", (many["many"] - many["step"]) / MANY, fork, "s", 3),
            Row("one step traced / not traced", taken["step"], taken["untraced"], "s", 1.05),
            Row(
                f"steps a second, {CLIENTS} clients", throughput(str(traced.socket), seconds), 0, "1/s", 200, more=True
            ),
        ]
        size = 512 << 20
        copy = ["dd", "if=/dev/zero", "bs=1M", f"count={size >> 20}", "status=none"]
        speed = in_turns(3, ours=lambda: pipe_speed([*words[:-1], *copy], size), peer=lambda: pipe_speed(copy, size))
        rows.append(Row("512 MiB of a task's stdout / a pipe", speed["ours"], speed["peer"], "s", 1.25))
        stacked(rounds, memory_dir / "stacked", one, rows)
        contained(rounds, memory_dir / "contained", one, rows)
        memory(traced, rows)
        rows += jobs(max(rounds // 4, 5), memory_dir / "jobs", command)
        srun(max(rounds // 10, 5), rows, taken["step"])
        rows += large_machine(max(rounds // 10, 5))
        rows += selecting(max(rounds // 20, 5))
        rows += queueing()
    finally:
        traced.close()
        plain.close()
        shutil.rmtree(memory_dir)
    return rows


def show(rows: list[Row]) -> None:
    """The table, for people."""
    print(f"{'what':52} {'ours':>10} {'peer':>10} {'ratio':>8} {'budget':>8}")
    for row in rows:
        scale, unit = (1000, "ms") if row.unit == "s" else (1, row.unit)
        peer = f"{row.peer * scale:.2f}" if row.peer else "-"
        sign = ">=" if row.more else "<="
        mark = "" if row.kept else "  over budget"
        print(
            f"{row.what:52} {row.ours * scale:>8.2f} {unit:4}{peer:>8} {row.ratio:>8.2f} {sign}{row.budget:>6g}{mark}"
        )


def main() -> int:
    """Measures, prints, writes; 0 even when a budget is broken: a busy machine is no failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", default="bench.json")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: needs root", file=sys.stderr)
        return 1
    assert threading.active_count() == 1
    rows = measure(arguments.rounds, arguments.seconds)
    show(rows)
    Path(arguments.json).write_text(
        json.dumps(
            {"cpus": os.cpu_count(), "kernel": os.uname().release, "rows": [row.as_json() for row in rows]}, indent=1
        ),
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
