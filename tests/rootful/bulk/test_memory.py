"""Memory for any number of commands: that of the client, and that of the step runner."""

from __future__ import annotations

import subprocess

from rootful.bulk_memory import GrowingLog, own_memory
from rootful.node import PATIENCE, Node, wait_until

FIRST, ALL = 2_000, 12_000
MOST = 1 << 10  # KiB
LINE = b"true" + b" x" * 50 + b"\n"  # so long that few are read at once


def test_thousands_of_commands_take_the_memory_of_some(served: Node) -> None:
    """Read when nothing runs: what waits, or is on its way, is the same at both points of the log."""
    log = GrowingLog(served.scratch / "log")
    command = subprocess.Popen(
        served.command("bulk", "-n2", "--joblog", str(log.path)), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        env=served.environment(), cwd=served.scratch,
    )  # fmt: skip
    assert command.stdin is not None
    try:
        command.stdin.write(LINE * FIRST)
        command.stdin.flush()
        wait_until(lambda: log.ended() == FIRST, "the first have ended", 4 * PATIENCE)
        (stepd,) = (pid for pid, name in served.processes() if name.startswith("stepd"))
        before = own_memory(command.pid), own_memory(stepd)
        command.stdin.write(LINE * (ALL - FIRST))
        command.stdin.flush()
        wait_until(lambda: log.ended() == ALL, "all have ended", 8 * PATIENCE)
        after = own_memory(command.pid), own_memory(stepd)
        command.stdin.close()
        assert command.wait(PATIENCE) == 0
    finally:
        command.kill()
        command.wait()
    assert after[0] - before[0] < MOST, "the client grows"
    assert after[1] - before[1] < MOST, "the step runner grows"
