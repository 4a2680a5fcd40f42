"""Many short commands: `nodectl bulk` beside xargs and, where they are installed, GNU parallel and HyperQueue."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from bench.floor import floor
from bench.programs import TRUE
from bench.rows import Row, in_turns

_COMMANDS = 10_000
_FEWER = 2_000  # where so many would take minutes
_FIRST = 500  # by which that is found out
_OF_PARALLEL = 1_000
_QUICK = 700  # commands a second
_SLOTS = 2
_TURNS = 3
# Modules of the standard library that take as long as numpy; imported once for some commands, and once for more.
_MODULES = "asyncio,json,decimal,email,http.client,xml.dom.minidom"
_SOME, _MORE = 10, 60
_HQ = Path(__file__).with_name("hq.py")


def bulk(here: Path, nodectl: list[str], cgroup: str) -> list[Row]:
    """Rates of /bin/true, two at a time. `nodectl`: the words of the command with its socket; `cgroup`: below it the
    loop in C, which says what can be reached at best, makes its cgroups.
    """
    values = here / "values"
    values.write_text("".join(f"{number}\n" for number in range(_COMMANDS)))
    ours = [*nodectl, "bulk", f"-n{_SLOTS}", TRUE]
    xargs = ["xargs", f"-P{_SLOTS}", "-n1", TRUE]
    count = _COMMANDS if _rate(ours, values, _FIRST)[0] > _QUICK else _FEWER
    with floor() as program:
        loop = [program, "loop", cgroup, str(count), str(_SLOTS)]
        turns = [[_rate(words, values, count) for words in (ours, xargs, loop)] for _ in range(_TURNS)]
    mine, peer, best = (statistics.median(rate for rate, _ in column) for column in zip(*turns, strict=True))
    cpu = statistics.median(turn[0][1] for turn in turns)
    rows = [
        Row(f"{count} commands a second, nodectl bulk / xargs -P{_SLOTS}", mine, peer, "1/s", 1.1, more=True),
        Row(f"{count} commands a second, a loop in C / xargs -P{_SLOTS}", best, peer, "1/s", more=True),
        Row("CPU of nodectl bulk itself, one command", 1000 * cpu / count, 0, "ms", 0.1),
    ]
    if shutil.which("parallel"):
        theirs, _ = _rate(["parallel", "--will-cite", f"-j{_SLOTS}", TRUE], values, _OF_PARALLEL)
        again, _ = _rate(ours, values, _OF_PARALLEL)
        what = f"{_OF_PARALLEL} commands a second, nodectl bulk / GNU parallel"
        rows.append(Row(what, again, theirs, "1/s", 7, more=True))
    if find_spec("hyperqueue"):
        rows.append(_beside_hyperqueue(ours, values))
    return [*rows, _preloaded(here, nodectl)]


def _beside_hyperqueue(ours: list[str], values: Path) -> Row:
    """HyperQueue's server and worker are there already, as is the service; the time is that of the commands."""
    words = [sys.executable, "-P", str(_HQ), str(_OF_PARALLEL), str(_SLOTS)]
    turns = []
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as hyperqueue:
        assert hyperqueue.stdin is not None
        assert hyperqueue.stdout is not None
        for _ in range(_TURNS):
            print(file=hyperqueue.stdin, flush=True)
            took = next(line for line in hyperqueue.stdout if line.startswith("took"))
            turns.append((_rate(ours, values, _OF_PARALLEL)[0], _OF_PARALLEL / float(took.split()[1])))
    mine, theirs = map(statistics.median, zip(*turns, strict=True))
    return Row(f"{_OF_PARALLEL} commands a second, nodectl bulk / HyperQueue", mine, theirs, "1/s", more=True)


def _preloaded(here: Path, nodectl: list[str]) -> Row:
    """A further command of a bulk with --preload, beside an interpreter that imports the same modules."""
    script, values = here / "script.py", here / "numbers"
    script.write_text(f"import {_MODULES}\n", encoding="ascii")
    values.write_text("".join(f"{number}\n" for number in range(_MORE)), encoding="ascii")
    words = [*nodectl, "bulk", "-n1", f"--preload={_MODULES}", f"{sys.executable} {script}"]
    taken = in_turns(
        _TURNS,
        some=lambda: _rate(words, values, _SOME),
        more=lambda: _rate(words, values, _MORE),
        alone=lambda: subprocess.run([sys.executable, "-c", f"import {_MODULES}"], check=True),
    )
    ours = (taken["more"] - taken["some"]) / (_MORE - _SOME)
    return Row("a command with --preload / python3 -c 'import ...'", 1000 * ours, 1000 * taken["alone"], "ms", 0.4)


def _rate(words: list[str], values: Path, count: int) -> tuple[float, float]:
    """Commands a second with so many of the values on stdin, and the CPU seconds of the process itself."""
    with values.open("rb") as file:
        head = b"".join(next(file) for _ in range(count))
    chosen = values.with_name("chosen")
    chosen.write_bytes(head)
    start = time.perf_counter()
    with chosen.open("rb") as file, subprocess.Popen(words, stdin=file, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words[0]}: exit status {process.returncode}")
    return count / (time.perf_counter() - start), usage.ru_utime + usage.ru_stime
