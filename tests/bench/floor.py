"""What can be reached at best: a small program in C that does nothing but start programs in cgroups (floor.c)."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.rows import Row

_SOURCE = Path(__file__).with_name("floor.c")
_INCLUDE = Path(__file__).parents[2] / "nodectl/kernel/c"


@contextlib.contextmanager
def floor() -> Iterator[str]:
    """The compiled program. It is not in /run, where a machine may forbid programs."""
    with tempfile.TemporaryDirectory(prefix="nodectl-bench-") as directory:
        program = f"{directory}/floor"
        subprocess.run(["cc", "-O2", "-std=gnu11", f"-I{_INCLUDE}", "-o", program, _SOURCE], check=True)
        yield program


def launch(rounds: int, cgroup: str) -> Row:
    """A start in a new cgroup below `cgroup`, in turns with posix_spawn, both by the program in C."""
    with floor() as program:
        words = [program, "launch", cgroup, str(rounds + 1)]
        told = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout
    turns = [tuple(map(int, line.split())) for line in told.splitlines()][1:]
    spawn, own = (statistics.median(taken) / 1e9 for taken in zip(*turns, strict=True))
    return Row("in C: a program in a new cgroup / posix_spawn", own, spawn, "s")
