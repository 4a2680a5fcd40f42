"""One process that was started for agents, as its holder sees it: what is to be written to it, and lines that come."""

from __future__ import annotations

import os

from nodectl.cluster.engine.engine import Agents
from nodectl.cluster.start.words import Lines

_CHUNK = 65536


class Streams:
    """srun, ssh, or the agent of a guest. Nothing here waits."""

    def __init__(self, agents: Agents) -> None:
        self.process = agents.process
        self.ranks = agents.ranks
        self.stdin, self.stdout, self.stderr = agents.stdin, agents.stdout, agents.stderr
        self.pidfd = os.pidfd_open(agents.process.pid)
        self._lines = {self.stdout: Lines(), self.stderr: Lines()}
        self.last_said = ""  # to people
        self._waiting = b""
        self._closed = False
        self.over = False
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)

    @property
    def writes(self) -> bool:
        """Whether something is left to be written."""
        return bool(self._waiting) and not self._closed

    @property
    def reads(self) -> list[int]:
        """What something may still come from."""
        return list(self._lines)

    def write(self, line: bytes = b"") -> None:
        """Writes on. Who does not read any more has ended, or is about to."""
        self._waiting += line
        if not self.writes:
            return
        try:
            self._waiting = self._waiting[os.write(self.stdin, self._waiting) :]
        except BlockingIOError:
            pass
        except OSError:
            self._waiting = b""

    def read(self, fd: int) -> list[str]:
        """Whole lines. Raises BadWords."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            del self._lines[fd]
            os.close(fd)
            return []
        return self._lines[fd].feed(data)

    def close(self) -> None:
        """The agents are to end."""
        if not self._closed:
            self._closed = True
            os.close(self.stdin)

    def bury(self) -> None:
        """The process has ended."""
        self.process.wait()
        self.over = True
        os.close(self.pidfd)
        for fd in (*self._lines, *(() if self._closed else (self.stdin,))):
            os.close(fd)
        self._lines.clear()
        self._closed = True
