"""The node's service, minded as a service manager does it: readiness, watchdog, an end in time, another start."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from rootful.node import Node

WATCHDOG_USEC = 1_000_000  # twice in which it is to be told
END_SECONDS = 10.0
_START_SECONDS = 60.0
_SILENT = 1.5  # seconds after which it is looked at
_LOOKS = 200


class Service:
    """One daemon after the other. Nothing here waits: `tick` is called often."""

    def __init__(self, node: Node) -> None:
        self._node = node
        address = str(node.dir / "notify")
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(address)
        self._notify.setblocking(False)
        self._environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(WATCHDOG_USEC)}
        self.up = False
        self.starts = 0
        self.failures: list[str] = []  # daemons that did not start, did not end, or ended by themselves
        self.slowest_end = 0.0
        self.ends_late = 0
        self.silence = 0.0  # the longest between two heartbeats of a daemon that nobody had struck
        self.silent_in: list[str] = []  # where the kernel has a daemon that is silent
        self.forgiven = False  # it has no memory, and may die of that
        self.died_of_want = 0
        self.struck = False  # whoever strikes the daemon says so: its silence is no fault of its own
        self._beat = 0.0
        self._since = 0.0
        self._ending = 0.0  # since when, 0 where it was not told to
        self._late = False
        self._pause = 0.0
        self._next_start = 0.0

    @property
    def pid(self) -> int:
        """The daemon's, 0 while there is none."""
        return 0 if self._node.daemon is None else self._node.daemon.pid

    @property
    def ending(self) -> bool:
        """Whether it was told to end and has not."""
        return bool(self._ending)

    def start(self) -> None:
        """Executes a daemon; `up` is true when it says that it is ready. Aborted, it writes down where it was."""
        python, *words = self._node.command("daemon")
        with (self._node.dir / "daemon.log").open("ab") as log:
            self._node.daemon = subprocess.Popen(
                [python, "-X", "faulthandler", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._node.environment(self._environment),
            )  # fmt: skip
        self.starts += 1
        self._since = time.monotonic()
        self._ending, self._late = 0.0, False

    def end(self, number: int, pause: float = 0.0) -> None:
        """Sends it a signal that ends it; `pause` seconds after its end another is started."""
        assert self._node.daemon is not None
        self._pause = pause
        self._ending = time.monotonic()
        self.up = False
        self._node.daemon.send_signal(number)

    def tick(self) -> None:
        """Hears what the daemon says, and what became of it."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._heard(self._notify.recv(4096))
        daemon, now = self._node.daemon, time.monotonic()
        if daemon is not None and self._beat and now - self._beat > _SILENT and len(self.silent_in) < _LOOKS:
            self.silent_in.append(_place(daemon.pid))
        if daemon is None:
            if now > self._next_start:
                self.start()
        elif daemon.poll() is not None:
            self._ended(daemon.returncode, now)
        elif self._ending and not self._late and now - self._ending > END_SECONDS:
            self._late = True
            self.ends_late += 1
            place = _place(daemon.pid)
            daemon.send_signal(signal.SIGABRT)
            time.sleep(0.5)
            self._fail(f"it did not end within {END_SECONDS:.0f} s, {place}", 30000)
            daemon.kill()
        elif not self.up and not self._ending and now - self._since > _START_SECONDS:
            self._fail(f"it was not ready after {_START_SECONDS:.0f} s")
            self.end(signal.SIGKILL)

    def _heard(self, said: bytes) -> None:
        now = time.monotonic()
        if said == b"READY=1":
            self.up = True
        elif said == b"WATCHDOG=1" and self.up and not self.struck:
            if self._beat:
                self.silence = max(self.silence, now - self._beat)
            self._beat = now
        if self.struck or not self.up:
            self._beat = 0.0

    def _ended(self, status: int, now: float) -> None:
        if not self._ending:
            if self.forgiven:
                self.died_of_want += 1
            else:
                self._fail(f"it ended by itself with {status}")
        else:
            self.slowest_end = max(self.slowest_end, now - self._ending)
            if status not in (0, -signal.SIGKILL, -signal.SIGTERM) and not self._late:
                self._fail(f"it ended with {status}")
        self._node.daemon = None
        self.up, self._ending, self._beat = False, 0.0, 0.0
        self._next_start, self._pause = now + self._pause, 0.0

    def _fail(self, why: str, most: int = 600) -> None:
        self.failures.append(f"{why}; its log ends: {self._node.logged()[-most:]}")

    def wait(self, patience: float = _START_SECONDS) -> bool:
        """Until it is up, or patience ends."""
        end = time.monotonic() + patience
        while not self.up and time.monotonic() < end:
            self.tick()
            time.sleep(0.01)
        return self.up

    def stop(self) -> None:
        """For good."""
        daemon = self._node.daemon
        if daemon is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon.pid, signal.SIGCONT)
            daemon.terminate()
            try:
                daemon.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._fail("it did not end at the end")
                daemon.kill()
                daemon.wait(END_SECONDS)
            self._node.daemon = None
        self._notify.close()


def _place(pid: int) -> str:
    """What the kernel says of a process that should be telling us that it lives."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return f"{stat} {Path(f'/proc/{pid}/wchan').read_text(encoding='ascii') or '-'}"
    except OSError:
        return "gone"
