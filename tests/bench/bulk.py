"""Many short commands: `nodectl bulk` beside xargs and, where it is installed, GNU parallel."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

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


def bulk(here: Path, nodectl: list[str]) -> list[Row]:
    """Rates of /bin/true, two at a time. `nodectl`: the words of the command with its socket."""
    values = here / "values"
    values.write_text("".join(f"{number}\n" for number in range(_COMMANDS)))
    ours = [*nodectl, "bulk", f"-n{_SLOTS}", TRUE]
    xargs = ["xargs", f"-P{_SLOTS}", "-n1", TRUE]
    count = _COMMANDS if _rate(ours, values, _FIRST)[0] > _QUICK else _FEWER
    turns = [(_rate(ours, values, count // _TURNS), _rate(xargs, values, count // _TURNS)) for _ in range(_TURNS)]
    rate, cpu, peer = (
        statistics.median(taken) for taken in zip(*((*one, other[0]) for one, other in turns), strict=True)
    )
    what = f"{count} commands a second, nodectl bulk / xargs -P{_SLOTS}"
    rows = [
        Row(what, rate, peer, "1/s", 0.6, more=True),
        Row("CPU of nodectl bulk itself, one command", 1000 * cpu / (count // _TURNS), 0, "ms", 0.1),
    ]
    if shutil.which("parallel"):
        theirs, _ = _rate(["parallel", "--will-cite", f"-j{_SLOTS}", TRUE], values, _OF_PARALLEL)
        again, _ = _rate(ours, values, _OF_PARALLEL)
        what = f"{_OF_PARALLEL} commands a second, nodectl bulk / GNU parallel"
        rows.append(Row(what, again, theirs, "1/s", 5, more=True))
    return [*rows, _preloaded(here, nodectl)]


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
