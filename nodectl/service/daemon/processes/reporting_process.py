"""A process executed by the daemon for a single purpose, which reports the result.

It is never a fork of the daemon, which has many descriptors and perhaps threads. The process reports through a socket
(`nodectl/spank/reporter.py`); the daemon watches it through a pidfd. If the process is silent for too long, the daemon
kills it with its process group. When the process ends, the daemon kills what is left in the group. Nothing here blocks.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from nodectl.kernel import signals
from nodectl.model.wire import framing, lean_json
from nodectl.service.daemon.processes import copied_descriptors
from nodectl.spank.reporter import DEAF

_START = "import sys; sys.path[:0] = {path!a}; from {package} import {module} as it; it.main({arguments!a})"
FIRST_EXTRA = 4
# Seconds. A hook's own timer (`nodectl/plugin_host/caller.py`) should fire first, and it fires more than once.
GRACE = 5.0
_OUT_OF_THE_WAY = 64  # dup2 onto 3 must not overwrite a descriptor that will become 4
_MOST = 1 << 18  # more than a socket holds
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # signals that Python ignores would be ignored after the exec too


class ReportingProcess:
    """A reporting process, killed after `seconds` (0: no limit) plus `grace` without a report.

    Descriptors: 0 is /dev/null, 1 and 2 the daemon's log, 3 the socket, from 4 on `extra`. Raises OSError.
    """

    def __init__(  # all that a process starts with
        self, module: str, arguments: Mapping[str, object], *, environment: Mapping[str, str], seconds: float,
        grace: float = 0, extra: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.plugin = ""
        self.call = ""
        self.stack_place = 0  # the plugin's place in the stack of that process
        self.on_end: Callable[[], None] | None = None
        self.status = 0  # the wait status, once it has ended
        self.results: list[str] = []  # one line for each reported result; "" for success
        self._seconds = seconds
        self._grace = grace
        self._heard = 0.0
        self._late = False
        self._partial = b""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._reported: asyncio.Future[None] = self._loop.create_future()
        self.pid, self._link = _execute(module, arguments, environment, extra)
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:  # no descriptors left: the daemon would not notice the process's end
            signals.send_child(self.pid, signals.KILL)
            os.waitpid(self.pid, 0)
            self._link.close()
            raise
        self._loop.add_reader(self._link.fileno(), self._read)
        self._loop.add_reader(self._pidfd, self._finish)
        self._timer: asyncio.TimerHandle | None = None
        self._restart_timer()

    @property
    def running(self) -> bool:
        """Whether the process has not been waited for."""
        return not self._ended.done()

    async def end(self) -> None:
        """Wait for the process's end. Kill the process if the caller is cancelled."""
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.kill()
            raise

    async def reported(self) -> None:
        """Wait until the process has reported a result or has ended."""
        await asyncio.wait((self._reported, self._ended), return_when=asyncio.FIRST_COMPLETED)

    def send(self, message: bytes) -> None:
        """Send the process a message through the socket."""
        self._link.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def kill(self) -> None:
        """Kill the process and the process group."""
        if self.running:
            signals.send(self._pidfd, signals.KILL)
            self._kill_group()

    def allow_silence(self, seconds: float) -> None:
        """Allow `seconds` of silence from now on; 0: no limit."""
        self._seconds = seconds
        self._restart_timer()

    def plugin_and_hook(self) -> str:
        """Return the plugin and hook running now, as "plugin x: slurm_spank_init", or "" for none."""
        return f"plugin {self.plugin}: {self.call}" if self.call else ""

    def how_it_ended(self) -> str:
        """Return how the process ended without a report: a time-out, a signal, an exit status."""
        if self._late:
            return f"took longer than {self._seconds:g} s"
        if self.status == DEAF << 8:
            return "closed the descriptor through which its process reports"
        if os.WIFSIGNALED(self.status):
            return f"died by {signal.Signals(os.WTERMSIG(self.status)).name}"
        return f"ended with exit status {os.waitstatus_to_exitcode(self.status)}"

    def _restart_timer(self) -> None:
        self._heard = time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._seconds + self._grace, self.time_out) if self._seconds else None

    def time_out(self) -> None:
        """Kill the process, which has been silent for too long."""
        self._late = True
        self.kill()

    def _read(self) -> None:
        try:
            data = self._link.recv(_MOST)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data or len(self._partial) > _MOST:
            self._loop.remove_reader(self._link.fileno())
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            said = lean_json.load_object(line)
        except lean_json.BadJson:
            return  # a plugin wrote there
        if "why" in said:
            self.results.append(str(said["why"]))
            self.plugin = self.call = ""
            if not self._reported.done():
                self._reported.set_result(None)
        elif said.keys() == {"plugin", "call", "place"}:
            self.plugin, self.call, self.stack_place = str(said["plugin"]), str(said["call"]), int(str(said["place"]))
        self._restart_timer()

    def _finish(self) -> None:
        """Collect the ended process, after killing the process group.

        Until then the process is a zombie, so no other process or group has its number.
        """
        self._late = self._late or (bool(self._seconds) and time.monotonic() - self._heard >= self._seconds)
        self._read()
        self._kill_group()
        _, self.status = os.waitpid(self.pid, 0)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._link.fileno())
        self._loop.remove_reader(self._pidfd)
        self._link.close()
        os.close(self._pidfd)
        self._ended.set_result(None)
        if self.on_end is not None:
            self.on_end()

    def _kill_group(self) -> None:
        signals.send_group_of_child(self.pid, signals.KILL)


def _execute(
    module: str, arguments: Mapping[str, object], environment: Mapping[str, str], extra: Sequence[int]
) -> tuple[int, socket.socket]:
    """Execute the module. Return (pid, our end of the socket). Raises OSError."""
    package, _, name = module.rpartition(".")
    code = _START.format(path=[p for p in sys.path if p], package=package, module=name, arguments=arguments)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    passed = copied_descriptors.copies((theirs.fileno(), *extra), _OUT_OF_THE_WAY)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", code],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, 2, 1),
                *((os.POSIX_SPAWN_DUP2, fd, place) for place, fd in enumerate(passed, FIRST_EXTRA - 1)),
            ],
            setsigdef=_RESET,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
        framing.close(passed)
    return pid, ours
