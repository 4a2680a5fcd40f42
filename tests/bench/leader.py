"""The leader of a cluster: what its core takes to place, start and end steps, by its own CPU time. No sockets."""

from __future__ import annotations

import time
from typing import Any

from bench.rows import Row
from nodectl.cluster.leader.core import Core
from nodectl.cluster.leader.effects import SendEach
from nodectl.cluster.machine import Machine, described
from nodectl.placement.machine.spec import from_spec

NOW = 1e6
ENVIRONMENT = {f"VARIABLE_{number}": "x" * 40 for number in range(60)}
TASK = {"task": 0, "status": 0, "user_seconds": 0.1, "system_seconds": 0.1, "max_rss_kib": 1000}
RECORD = {
    "state": "COMPLETED", "exit_status": 0, "reason": "", "tasks": [TASK], "cpu_seconds": [0.1, 0.1], "peak_memory": 5,
    "started": NOW, "ended": NOW,
}  # fmt: skip
SMALL_STEPS = 1000


def cluster(count: int) -> Core:
    """Nodes of 64 cores each, all of which have joined."""
    core = Core(1, [f"n{rank:05d}" for rank in range(count)], NOW)
    said = described(Machine(from_spec("2s:32c:1t"), 256_000))
    for rank in range(count):
        core.joined(rank, said, NOW)
    core.take()
    return core


def started(core: Core, number: int, nodes: int) -> SendEach:
    """The order that starts a step with a task on each of so many nodes."""
    request: dict[str, Any] = {"argv": ["true"], "environment": ENVIRONMENT, "cwd": "/", "ntasks": nodes}
    if nodes > 1:
        request["layout"] = {"nodes": str(nodes)}
    header = {"id": number, "method": "Launch", "parameters": {"request": request}, "streams": True}
    core.received("call", 0, header, NOW)
    return next(one for one in core.take() if isinstance(one, SendEach) and one.kind == "start")


def ended(core: Core, start: SendEach) -> None:
    """All parts begin and end."""
    step = start.common["step"]
    for rank in start.each:
        core.received("begun", rank, {"step": step}, NOW)
    core.take()
    for rank in start.each:
        core.received("told", rank, {"step": step, "events": [{"event": "exit", "tasks": [0], "status": 0}]}, NOW)
        core.received("ended", rank, {"step": step, "record": RECORD}, NOW)
    core.take()


def leader() -> list[Row]:
    """The rows; milliseconds and rates of CPU time, which other processes do not change."""
    rows = []
    for count, goal in ((3, 5), (1000, 100), (10_000, 1000)):
        core = cluster(count)
        ended(core, started(core, 0, count))
        begin = time.process_time()
        start = started(core, 1, count)
        placed = time.process_time()
        ended(core, start)
        over = time.process_time()
        rows.append(Row(f"the leader places and starts a step of {count} nodes", 1e3 * (placed - begin), 0, "ms", goal))
        rows.append(Row("it hears of all its parts, and makes its record", 1e3 * (over - placed), 0, "ms", goal))
        begin = time.process_time()
        for number in range(SMALL_STEPS):
            ended(core, started(core, 2 + number, 1))
        rate = SMALL_STEPS / (time.process_time() - begin)
        rows.append(Row(f"steps of one task a second among {count} nodes", rate, 0, "1/s", 500, more=True))
    return rows
