"""How long another user's Hello takes, measured all the time by a process of that user's that does nothing else."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import prctl

from nodectl.model.wire import framing
from rootful.raw import call

_PAUSE = 0.02
_PATIENCE = 20  # seconds


@dataclass(frozen=True)
class Sample:
    """One Hello: when it began and ended, and whether it was answered."""

    began: float
    ended: float
    answered: bool
    why: str = ""


class Probe:
    """The process, and the file in which it writes."""

    def __init__(self, node_socket: Path, path: Path, user: pwd.struct_passwd) -> None:
        self._path = path
        path.touch()
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                fd = os.open(path, os.O_WRONLY | os.O_APPEND)
                prctl.set_pdeathsig(signal.SIGKILL)
                os.setgroups([])
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
                _ask_for_ever(str(node_socket), fd)
            os._exit(1)

    def samples(self) -> list[Sample]:
        """All that there are so far."""
        found = []
        for line in self._path.read_text(encoding="ascii").splitlines():
            began, ended, why = line.split(" ", 2)
            found.append(Sample(float(began), float(ended), not why, why))
        return found

    def stop(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _ask_for_ever(path: str, fd: int) -> None:
    hello = call("org.nodectl.Hello")
    while True:
        began = time.monotonic()
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                for wait in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # it waits for room to connect, as clients do
                    sock.setsockopt(socket.SOL_SOCKET, wait, struct.pack("ll", _PATIENCE, 0))
                sock.connect(path)
                sock.sendall(hello)
                reply = str(framing.receive(sock, framing.Inbox(1 << 20)))
                why = "" if "version" in reply else reply[:200]
        except (OSError, framing.BrokenWire) as error:
            why = f"{type(error).__name__} {error}"
        os.write(fd, f"{began:.6f} {time.monotonic():.6f} {why}\n".encode())
        time.sleep(_PAUSE)


def beside(samples: Sequence[Sample], excused: Sequence[tuple[float, float]]) -> list[Sample]:
    """Those that nothing excuses."""
    return [s for s in samples if not any(s.began < end and begin < s.ended for begin, end in excused)]


def latencies(samples: Sequence[Sample], excused: Sequence[tuple[float, float]]) -> tuple[float, float, int, int]:
    """Median and worst in seconds, how many there were and how many had no answer, beside the times in which the
    service had been struck itself.
    """
    counted = beside(samples, excused)
    taken = [s.ended - s.began for s in counted if s.answered]
    unanswered = sum(not s.answered for s in counted)
    return (statistics.median(taken), max(taken), len(taken), unanswered) if taken else (0.0, 0.0, 0, unanswered)
