"""What jobs that wait cost: to submit one, to keep thousands."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.rows import Row, in_turns
from nodectl.model.wire import framing
from rootful.node import Node

_QUEUED = 10_000
_REST = 10.0  # seconds of a daemon at rest
_SUBMISSIONS = 300
_FAR = 1 << 33  # seconds since the epoch: such a job does not begin today
_TICKS = os.sysconf("SC_CLK_TCK")


class Submitter:
    """A client that stays connected and submits jobs that begin in many years."""

    def __init__(self, node: Node) -> None:
        self._sock = framing.connect(str(node.socket))
        self._inbox = framing.Inbox(1 << 20)

    def submit(self) -> int:
        """The id of a job that is on the disk."""
        request = {"argv": ["script"], "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "ntasks": 1}
        parameters = {"request": request, "job": {"begin": _FAR}, "script": "#!/bin/sh\ntrue\n"}
        framing.send(self._sock, {"method": "org.nodectl.Submit", "parameters": parameters})
        reply = framing.receive(self._sock, self._inbox)
        if reply is None or "error" in reply:
            raise RuntimeError(str(reply))
        return int(reply["parameters"]["job"])  # type: ignore[index]

    def close(self) -> None:
        self._sock.close()


def cpu_seconds(pid: int) -> float:
    """That a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def command(words: list[str]) -> Callable[[], None]:
    """Runs it to its end; what it prints is not wanted."""

    def do() -> None:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    return do


def jobs(rounds: int, runtime_dir: Path, nodectl: str) -> list[Row]:
    """The rows about jobs, measured on a node of their own."""
    most = 2 * _QUEUED
    node = Node(runtime_dir=str(runtime_dir), max_submit_jobs_per_user=most, select_type="select/cons_tres",
                over_subscribe="no")  # fmt: skip
    node.start()
    try:
        words = [nodectl, "--socket", str(node.socket)]
        later = ["submit", "--begin=now+300days", "--wrap=true", "--output=/dev/null"]
        taken = in_turns(rounds, submit=command([*words, *later]), ps=command([*words, "ps"]))
        client = Submitter(node)
        begun = time.perf_counter()
        for _ in range(_SUBMISSIONS):
            client.submit()
        rate = _SUBMISSIONS / (time.perf_counter() - begun)
        for _ in range(_QUEUED - _SUBMISSIONS):
            client.submit()
        client.close()
        assert node.daemon is not None
        before = cpu_seconds(node.daemon.pid)
        time.sleep(_REST)
        rest = 100 * (cpu_seconds(node.daemon.pid) - before) / _REST
    finally:
        node.close()
    return [
        Row("nodectl submit / nodectl ps", taken["submit"], taken["ps"], "s", 3),
        Row("submissions a second, one client", rate, 0, "1/s", 100, more=True),
        Row(f"CPU of a daemon at rest with {_QUEUED} jobs waiting", rest, 0, "%", 5),
    ]
