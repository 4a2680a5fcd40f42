"""What is measured beside nodectl: programs that are started without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

TRUE = "/bin/true"
LOOPS = 8
_LONGEST = 180  # seconds of one of them


def spawn(*words: str, environment: Mapping[str, str] = os.environ) -> Callable[[], None]:
    """posix_spawn and wait; fails unless the program ends with 0."""

    def do() -> None:
        pid = os.posix_spawn(words[0], words, environment)
        try:
            status = os.waitpid(pid, 0)[1]
        except BaseException:  # a signal's handler does not wait any longer
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        if status != 0:
            raise RuntimeError(f"failed: {words}")

    return do


def spawn_at_once(count: int, *words: str) -> Callable[[], None]:
    """posix_spawn of so many, and then wait for all of them; fails unless each ends with 0."""

    def do() -> None:
        for _ in range(count):
            os.posix_spawn(words[0], words, os.environ)
        statuses = [os.wait()[1] for _ in range(count)]
        if any(statuses):
            raise RuntimeError(f"failed: {words}")

    return do


def loops(command: Callable[[], None], seconds: float) -> int:
    """How often several processes together get a command done."""
    end = time.monotonic() + seconds
    children = []
    for _ in range(LOOPS):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            count = 0
            signal.alarm(_LONGEST)
            try:
                while time.monotonic() < end:
                    command()
                    count += 1
                os.write(writer, str(count).encode())
            finally:
                os._exit(0)
        os.close(writer)
        children.append((pid, reader))
    total = 0
    for pid, reader in children:
        with open(reader, "rb") as file:
            total += int(file.read() or 0)  # nothing, where a command failed
        os.waitpid(pid, 0)
    return total


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
