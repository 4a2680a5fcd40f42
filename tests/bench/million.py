"""A million commands of one bulk step, and what client and step runner keep in memory for them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.programs import TRUE
from bench.rows import Row
from rootful.bulk_memory import GrowingLog, own_memory
from rootful.node import Node

_FIRST, _ALL = 10_000, 1_000_000
_AT_ONCE = 1_000  # lines of one write
_PAUSE = 0.2  # seconds between two looks at the log


def million(node: Node, nodectl: list[str]) -> list[Row]:
    """Two at a time. Memory is read when nothing runs: after the first ones and, while the source is still open, after
    all of them. `nodectl`: the words of the command with its socket.
    """
    log = GrowingLog(node.scratch / "million.log")
    words = [*nodectl, "bulk", "-n2", "--joblog", str(log.path)]
    start = time.monotonic()
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as client:
        first = _after(_FIRST, client, log, node)
        last = _after(_ALL - _FIRST, client, log, node)
        took = time.monotonic() - start
        assert client.stdin is not None
        client.stdin.close()
        if client.wait():
            raise RuntimeError(f"nodectl bulk: exit status {client.returncode}")
    log.path.unlink()
    of_all = f"own memory after {_ALL:,} commands / after {_FIRST:,}"
    return [
        Row(f"client, {of_all}", last[0], first[0], "MiB", 1.1),
        Row(f"step runner, {of_all}", last[1], first[1], "MiB", 1.1),
        Row(f"{_ALL:,} commands a second", _ALL / took, 0, "1/s", 700, more=True),
    ]


def _after(more: int, client: subprocess.Popen[bytes], log: GrowingLog, node: Node) -> tuple[float, float]:
    """MiB of both when so many more have ended."""
    assert client.stdin is not None
    wanted = max(log.ended(), 0) + more
    for _ in range(more // _AT_ONCE):
        client.stdin.write(f"{TRUE}\n".encode() * _AT_ONCE)
        log.ended()
    client.stdin.flush()
    while log.ended() < wanted:
        if client.poll() is not None:
            raise RuntimeError(f"nodectl bulk: exit status {client.returncode}")
        time.sleep(_PAUSE)
    (stepd,) = (pid for pid, name in node.processes() if name.startswith("stepd"))
    return own_memory(client.pid) / 1024, own_memory(stepd) / 1024


def alone(command: Path) -> list[Row]:
    """On a node of its own."""
    node = Node(trace=False)
    try:
        node.start()
        return million(node, [str(command), "--socket", str(node.socket)])
    finally:
        node.close()
