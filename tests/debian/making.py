"""What directories with a Debian in them are made with: commands, each to its end with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

SUITE = "bookworm"
PATIENCE = 900  # seconds, for each program; packages are downloaded


class CannotMake(Exception):
    """There is no such directory; str() says why."""


def run(*argv: str | Path) -> None:
    """A command to its end, with everything that it started. Raises CannotMake."""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
    ) as running:
        try:
            said, _ = running.communicate(timeout=PATIENCE)
        except BaseException as error:
            _end(running)
            if isinstance(error, subprocess.TimeoutExpired):
                raise CannotMake(f"{argv[0]} was not done after {PATIENCE} s") from None
            raise
    if running.returncode != 0:
        raise CannotMake(f"{argv[0]} ended with {running.returncode}: {said.decode(errors='replace')[-4000:]}")


def _end(running: subprocess.Popen[bytes]) -> None:
    """mmdebstrap cleans up when it is told to end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(running.pid, number)
        try:
            running.wait(timeout=10)
            break
        except subprocess.TimeoutExpired:
            continue
