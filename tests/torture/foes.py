"""All hostile clients. Each is a process of its own, which SIGKILL ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import prctl

from torture import hostile, hostile_jobs
from torture.foe import HOSTILE, Foe

KINDS = {**hostile.KINDS, **hostile_jobs.KINDS}


def begin(kind: str, node_socket: Path, steps_dir: Path, file: str, seed: int) -> int:
    """Forks one that goes on until it is killed; its pid. Root only."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            prctl.set_pdeathsig(signal.SIGKILL)
            if kind not in hostile.AS_ROOT:
                os.setgroups([])
                os.setgid(HOSTILE.pw_gid)
                os.setuid(HOSTILE.pw_uid)
            foe = Foe(node_socket, steps_dir, file, seed)
            while True:
                with contextlib.suppress(OSError):
                    KINDS[kind](foe)
                    continue
                time.sleep(0.05)  # refused, or there is no service at the moment
        os._exit(1)
    return pid
