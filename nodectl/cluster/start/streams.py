"""The streams of a process started for agents, as seen by the holder: queued output, and lines of input."""

from __future__ import annotations

import os

from nodectl.cluster.engine.engine import Agents
from nodectl.cluster.start.words import Lines

_CHUNK = 65536


class Streams:
    """The streams of srun, ssh, or a guest's agent. No method waits."""

    def __init__(self, agents: Agents) -> None:
        self.process = agents.process
        self.ranks = agents.ranks
        self.stdin, self.stdout, self.stderr = agents.stdin, agents.stdout, agents.stderr
        self.pidfd = os.pidfd_open(agents.process.pid)
        self._lines = {self.stdout: Lines(), self.stderr: Lines()}
        self.last_said = ""  # the last message of the agent to people
        self._waiting = b""
        self._closed = False
        self.over = False
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)

    @property
    def writes(self) -> bool:
        """True if output is queued."""
        return bool(self._waiting) and not self._closed

    @property
    def reads(self) -> list[int]:
        """The descriptors with possible input."""
        return list(self._lines)

    def write(self, line: bytes = b"") -> None:
        """Queue a line and write as much as possible. Drop the queue if the process no longer reads."""
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
        """Return whole lines. Raises BadWords."""
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
        """Close the standard input, to end the agents."""
        if not self._closed:
            self._closed = True
            os.close(self.stdin)

    def bury(self) -> None:
        """Reap the process and close all streams."""
        self.process.wait()
        self.over = True
        os.close(self.pidfd)
        for fd in (*self._lines, *(() if self._closed else (self.stdin,))):
            os.close(fd)
        self._lines.clear()
        self._closed = True
