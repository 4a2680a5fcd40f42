"""The daemon's side of the forkserver: starts the process, hands over steps, notices the process's death.

The daemon's first forkserver was executed before this module was imported, and waits for its first order
(`companions.py`). A forkserver that dies is started again with the next step; stepds go on without it.
"""

import asyncio
import errno
import os
import select
import socket
from collections.abc import Callable, Mapping, Sequence

from nodectl.kernel import signals
from nodectl.model.config import Config
from nodectl.model.wire import framing, lean_json
from nodectl.plugin_host import kinds
from nodectl.service.daemon.processes import companions
from nodectl.service.daemon.processes.companions import Companion

_READY_SECONDS = 20
_END_SECONDS = 5


class ForkserverDied(Exception):
    """Raised when the forkserver could not be started; str() is a line."""


class ForkserverChannel:
    """The channel to the forkserver.

    The event loop calls `answered(message)` for each answer, {"step", "pid"} or {"step", "error"}, and with "lost" when
    the forkserver has died. `earlier()` returns the container plugins besides the configured one that still have
    containers.
    """

    def __init__(
        self,
        config: Config,
        lock: int,
        programs: int,
        answered: Callable[[Mapping[str, object]], None],
        earlier: Callable[[], list[str]],
        begun: Companion | None = None,
    ) -> None:
        self._config = config
        self._programs = programs
        self._lock = lock  # shared with the forkserver: the next daemon begins when both have released it
        self._answered = answered
        self._earlier = earlier
        self._begun = begun
        self._sock: socket.socket | None = None
        self._told: socket.socket | None = None  # the channel of a forkserver that is not ready yet
        self._waiting: list[tuple[bytes, list[int]]] = []
        self._when_answered: dict[str, Callable[[], None]] = {}  # by step
        self._is_full = False  # the channel is full: `_waiting` waits for room
        self._told_plugins: tuple[list[str], int] | None = None
        self.pid = 0
        seconds = config.spank_hook_timeout  # limit of an init(); 0: none
        self._patience: float | None = _READY_SECONDS + seconds if seconds else None

    def tell(self) -> None:
        """Send the first order to the forkserver already executed, or to a new forkserver.

        `start` waits until the forkserver is ready. Raises ForkserverDied; OSError if there can be no forkserver.
        """
        self._told = self._begin()

    def start(self) -> None:
        """Wait until a forkserver is ready, executing a new process if needed. Return at once if already ready.

        Raises ForkserverDied; OSError if there can be no forkserver.
        """
        if self._sock is not None:
            return  # leftovers of an earlier daemon ended before this forkserver was ready
        self._told_plugins = None
        ours, self._told = self._told or self._begin(), None
        ours.settimeout(self._patience)
        try:
            answer = lean_json.load_object(ours.recv(65536) or b'{"error":"it ended at once; see the log"}')
        except OSError as error:
            answer = {"error": f"no answer: {error}"}
        if not answer.get("ready"):
            ours.close()
            self.collect()  # the process's end releases the lock
            raise ForkserverDied(f"start the forkserver: {answer.get('error')}")
        ours.setblocking(False)
        self._patience = _READY_SECONDS  # for a serving daemon, which the service manager watches
        self._sock = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    def _begin(self) -> socket.socket:
        """Return the channel of a forkserver which was sent the first order. Raises OSError, ForkserverDied."""
        order = {
            "plugins": {kind: list(types) for kind, types in kinds.configured(self._config, kinds.NODE).items()},
            "plugin_dir": list(self._config.plugin_dir),
            "earlier": self._earlier(),
            "timeout": self._config.spank_hook_timeout,
            "spank_versions": self._config.spank_versions,
            "warm_runners": self._config.warm_runners,
            "warm_runner_time": self._config.warm_runner_time,
        }
        try:
            begun, self._begun = self._begun or companions.begin_forkserver(), None
        except OSError as error:
            raise ForkserverDied(f"start the forkserver: {error.strerror}") from error
        self.pid = begun.pid
        ours = socket.socket(fileno=begun.channel)
        try:
            socket.send_fds(ours, [lean_json.dumps(order).encode("ascii")], [self._lock, self._programs])
        except ConnectionError:
            pass  # the forkserver has ended; the next read says so
        except OSError:
            ours.close()
            self.collect()
            raise
        return ours

    def submit(
        self, request: Mapping[str, object], plugins: tuple[list[str], int], fds: Sequence[int],
        when_answered: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        """Ask for a stepd; close `fds` once sent. Raises ForkserverDied.

        `when_answered` is called once, with the answer or when the forkserver dies. By then neither the daemon nor the
        forkserver holds `fds`, so neither holds anything a user sends there later.
        `plugins` is the files of the step's stack and the number of their changes. If either differs from the last
        request, the forkserver is told the files and looks at them.
        """
        self._ensure_started(fds)
        if plugins != self._told_plugins:
            request = {**request, "plugins": plugins[0]}
        step = str(request["step"])
        if when_answered is not None:
            self._when_answered[step] = when_answered
        try:
            self._send(request, fds)
        except OSError:
            self._when_answered.pop(step, None)
            raise
        self._told_plugins = plugins

    def request_container(self, request: Mapping[str, object], fds: Sequence[int]) -> None:
        """Ask for work on a container (`nodectl/launch/forkserver/container_requests.py`); close `fds` once sent.

        Raises ForkserverDied; OSError for a request that is too long.
        """
        self._ensure_started(fds)
        self._send(request, fds)

    def _ensure_started(self, fds: Sequence[int]) -> None:
        try:
            self.start()
        except (ForkserverDied, OSError):
            framing.close(fds)
            raise

    def _send(self, request: Mapping[str, object], fds: Sequence[int]) -> None:
        data = lean_json.dumps(request).encode("ascii")
        if len(data) > framing.LONGEST_ORDER:
            framing.close(fds)
            raise OSError(errno.E2BIG, f"{len(data)} bytes are more than the forkserver takes, {framing.LONGEST_ORDER}")
        self._waiting.append((data, list(fds)))
        self._write()

    def _write(self) -> None:
        while self._waiting and self._sock is not None:
            data, fds = self._waiting[0]
            try:
                framing.send_some(self._sock, data, fds)
            except BlockingIOError:
                if not self._is_full:
                    self._is_full = True
                    asyncio.get_running_loop().add_writer(self._sock.fileno(), self._write)
                return
            except OSError:
                self._lost()
                return
            del self._waiting[0]
            framing.close(fds)
        if self._is_full and self._sock is not None:
            self._is_full = False
            asyncio.get_running_loop().remove_writer(self._sock.fileno())

    def _read(self) -> None:
        assert self._sock is not None  # noqa: S101  # the reader is removed with it
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        answer = lean_json.load_object(data)
        if "error" in answer:
            self._told_plugins = None  # the forkserver may not have looked at the files
        self._answered(answer)
        if (when_answered := self._when_answered.pop(str(answer["step"]), None)) is not None:
            when_answered()

    def _lost(self) -> None:
        """Clean up after the forkserver's death: unanswered steps are not started."""
        self.close()
        signals.send_child(self.pid, signals.KILL)
        os.waitpid(self.pid, 0)
        self.pid = 0
        self._answered({"lost": True, "error": "the forkserver died"})
        waiting, self._when_answered = self._when_answered, {}
        for when_answered in waiting.values():
            when_answered()

    def close(self) -> None:
        """Close the channel, which ends the forkserver."""
        if self._sock is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._sock.fileno())
            loop.remove_writer(self._sock.fileno())
            self._sock.close()
            self._sock, self._is_full = None, False
            waiting, self._waiting = self._waiting, []
            for _, fds in waiting:
                framing.close(fds)

    def collect(self) -> None:
        """Wait for the forkserver's end after `close`; kill a forkserver stuck, for instance, in a plugin's fini()."""
        if self.pid:
            pidfd = os.pidfd_open(self.pid)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(_END_SECONDS * 1000):
                signals.send(pidfd, signals.KILL)
            os.waitpid(self.pid, 0)
            os.close(pidfd)
        self.pid = 0
