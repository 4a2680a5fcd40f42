"""Processes of a bed's machines, as the machine beneath sees them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from rootful.node import wait_until


def inner(process: subprocess.Popen[str]) -> int:
    """The program that a bed's `popen` started."""
    wait_until(lambda: children(process.pid) or process.poll() is not None, "it runs")
    (pid,) = children(process.pid)
    return pid


def kill(process: subprocess.Popen[str]) -> None:
    """Ends the program that a bed's `popen` started, with its children."""
    for pid in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def children(pid: int) -> list[int]:
    """Of a process with one thread."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> list[int]:
    """All below a process, those of threads too."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(OSError):
            below = [
                int(word)
                for task in os.listdir(f"/proc/{one}/task")
                for word in Path(f"/proc/{one}/task/{task}/children").read_text(encoding="ascii").split()
            ]
            found += below
            waiting += below
    return found


def words_of(pid: int) -> list[str]:
    """Of its command line; none of a process that has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")[:-1]
    except OSError:
        return []


def is_first(pid: int) -> bool:
    """Whether it is process 1 of its PID namespace."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return status.partition("NSpid:")[2].splitlines()[0].split()[-1] == "1"
