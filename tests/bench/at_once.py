"""Many clients that come at the same time: when the first has its result, and how long the others wait."""

from __future__ import annotations

import os
import statistics
import time

from bench.programs import TRUE
from bench.rows import Row

_CLIENTS = 60


def at_once(rounds: int, run: list[str]) -> list[Row]:
    """Processes of `nodectl run`, whose words are `run`, in turns with a single one; the first turn does not count."""
    words = [*run, TRUE]
    turns = [(_ended(1, words), _ended(_CLIENTS, words)) for _ in range(rounds + 1)][1:]
    alone = statistics.median(one[0] for one, _ in turns)
    first = statistics.median(many[0] for _, many in turns)
    taken = sorted(seconds for _, many in turns for seconds in many)
    slow = taken[len(taken) * 99 // 100]
    what = f"{_CLIENTS} nodectl run at once"
    return [
        Row(f"{what}, the first to end / one alone", first, alone, "s", 3),
        Row(f"{what}, 99th percentile / median", slow, statistics.median(taken), "s", 6),
    ]


def _ended(count: int, words: list[str]) -> list[float]:
    """Seconds after which each of so many processes has ended. One event starts all of them: a pipe is closed."""
    ready, tell = os.pipe()
    start, go = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            try:
                os.close(go)
                os.write(tell, b"1")
                os.read(start, 1)
                os.execv(words[0], words)
            finally:
                os._exit(1)
    for _ in range(count):
        os.read(ready, 1)
    begun, taken = time.perf_counter(), []
    os.close(go)
    for _ in range(count):
        status = os.wait()[1]
        taken.append(time.perf_counter() - begun)
        if status:
            raise RuntimeError(f"failed: {words}")
    for pipe_end in (ready, tell, start):
        os.close(pipe_end)
    return taken
