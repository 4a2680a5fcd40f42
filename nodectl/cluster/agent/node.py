"""The user's own node on the agent's machine: a daemon belonging to this agent, in a directory of the daemon's own.

The agent restarts the daemon after its death, and the new daemon takes over the running steps: these are connected to
the agent, not through the daemon. The daemon reads the end of a pipe that only the agent holds: when the agent goes, in
whatever way, the daemon ends its steps and itself, and removes its files.
"""

import asyncio
import os
import sys
from collections.abc import Mapping

from nodectl.client.command import Failed
from nodectl.cluster.agent import place
from nodectl.kernel import signals
from nodectl.model.config import own_node
from nodectl.placement.binding.devices import SEEN_BY

_START = (
    "import gc, sys; gc.disable(); "  # until it serves: saves a tenth of the import time
    "sys.path[:0] = {path!r}; from nodectl.cli import daemon; "
    "import os; os._exit(daemon.of_agent({directory!r}, {config!r}, {kill_wait}))"
)
_HANDED_ON = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "PATH", *SEEN_BY)
_LONGEST_PAUSE = 16.0
_SOON = 5.0  # after a shorter life of a daemon, the next start is delayed
_LOOK = 1.0
_SECONDS = 60.0  # for the daemon's start


class OwnNode:
    """The daemon's process. `directory` is the agent's, and exists; the daemon's own directory lies inside."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.socket = f"{directory}/node/nodectl.sock"
        self._pid = 0
        self._pidfd = -1
        self._pipe = -1
        self._pause = 0.0
        self._ended: asyncio.Event | None = None
        self._ending = False
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the daemon, and restart after each end. Raises Failed."""
        await self._begin()
        self._keeper = asyncio.create_task(self._keep())

    async def _begin(self) -> None:
        ready = self._execute()
        self._pidfd = os.pidfd_open(self._pid)
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pidfd, self._ended.set)
        try:
            await _told_ready(ready)
        finally:
            os.close(ready)

    def _execute(self) -> int:
        """Execute the daemon and return the descriptor for the ready message."""
        reader, self._pipe = os.pipe2(os.O_CLOEXEC)
        ready, told = os.pipe2(os.O_CLOEXEC)
        path = [entry for entry in sys.path if entry]
        code = _START.format(
            path=path, directory=self._directory, config=own_node.configuration(), kill_wait=place.kill_wait(os.environ)
        )
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", code],
                _environment(),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reader, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, told, 3),
                ],
                setpgroup=0,
            )
        finally:
            os.close(reader)
            os.close(told)
        return ready

    async def _keep(self) -> None:
        """Restart the daemon after each end."""
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            if self._ended is not None:
                await self._ended.wait()
            self._collect()
            if self._ending:
                return
            self._pause = 0.0 if loop.time() - begun > _SOON else min(max(0.5, 2 * self._pause), _LONGEST_PAUSE)
            print("nodectl agent: its node's daemon has ended; another one is started", file=sys.stderr)
            await asyncio.sleep(self._pause)
            try:
                await self._begin()
            except (Failed, OSError) as error:
                print(f"nodectl agent: {error}", file=sys.stderr)
                self._close_pipe()

    def _collect(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
            os.waitpid(self._pid, 0)
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    async def end(self) -> None:
        """End the daemon, after the end of all steps there."""
        self._ending = True
        self._close_pipe()
        if self._keeper is not None:
            if self._pidfd < 0:
                self._keeper.cancel()
            while not self._keeper.done():
                if self._pidfd >= 0:
                    signals.send(self._pidfd, signals.CONT)  # the daemon may have been stopped
                await asyncio.wait([self._keeper], timeout=_LOOK)


async def _told_ready(ready: int) -> None:
    """Wait until the daemon is ready. Raises Failed."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    loop.add_reader(ready, told.set)
    try:
        async with asyncio.timeout(_SECONDS):
            await told.wait()
        if os.read(ready, 1) != b"1":
            raise Failed("the node's daemon did not come up (its own message is above)")
    except TimeoutError:
        raise Failed(f"the node's daemon did not come up within {_SECONDS:g} s") from None
    finally:
        loop.remove_reader(ready)


def _environment() -> Mapping[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "NODECTL_READY_FD": "3",
        **{name: os.environ[name] for name in _HANDED_ON if name in os.environ},
    }
