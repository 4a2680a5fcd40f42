"""The daemon's part in job containers: it has them deleted, restored and told of a new configuration.

What is done is done by errands (`nodectl/container/errand.py`), processes of the forkserver's; here is who asks for
them and waits. An errand that dies without an answer is asked for again.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping

from nodectl import lean_json
from nodectl.config import Config
from nodectl.container import settings
from nodectl.daemon import descriptors
from nodectl.daemon.forkchannel import ForkChannel, ForkserverDied
from nodectl.daemon.live import LiveStep
from nodectl.step import Step
from nodectl.stepd.node_plugins import NodePlugins

_TRIES = 3
_LONGEST_ANSWER = 65536


class Containers:
    """The containers of one node's jobs."""

    def __init__(self, config: Config, plugins: NodePlugins, forkserver: ForkChannel) -> None:
        self._config = config
        self._hooks = plugins.container.hooks
        self._forkserver = forkserver
        self._restoring: asyncio.Task[None] | None = None

    def owed(self, step: Step) -> bool:
        """True when the end of the step is its job's, and that an end of its container."""
        return bool(step.container) and not step.step_id and "container_p_delete" in self._hooks

    async def delete(self, live: LiveStep) -> str:
        """The job has ended. Returns what is wrong, one line, which is logged, "" for nothing."""
        trace = live.files.append_trace() if self._config.trace else -1
        try:
            why = await self._errand({"container": "delete", "spec": live.files.spec}, trace)
        finally:
            if trace >= 0:
                os.close(trace)
        if why:
            why = f"job {live.step.job_id}: {why}"
            print(f"nodectl daemon: {why}", file=sys.stderr)
        return why

    def restore(self) -> None:
        """After a start, in the background: containers that nobody owns any more are removed."""
        if "container_p_restore" in self._hooks:
            self._restoring = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        why = await self._errand({"container": "restore", "base": settings.base_path(self._config)})
        if why:
            print(f"nodectl daemon: restore containers: {why}", file=sys.stderr)

    def reconfigure(self) -> None:
        """SIGHUP: the plugin is told, in the forkserver, so that the steps to come know."""
        if "container_p_reconfig" in self._hooks:
            try:
                self._forkserver.errand({"container": "reconfigure", "timeout": self._config.spank_hook_timeout}, [])
            except ForkserverDied as error:
                print(f"nodectl daemon: container_p_reconfig: {error}", file=sys.stderr)

    async def settle(self) -> None:
        """Before the daemon ends: what is under way goes on without it."""
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])

    async def visit(self, request: Mapping[str, object], fds: list[int]) -> Mapping[str, object]:
        """Has a visit made (`nodectl/container/visit.py`). Returns what came of it: why, status."""
        answer = await self._once(request, fds)
        return lean_json.load_object(answer) if answer else {"why": "its process died", "status": 1}

    async def _once(self, request: Mapping[str, object], more: list[int]) -> bytes:
        """One errand's answer, b"" where it died. Raises OSError, ForkserverDied."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fds = descriptors.copies((theirs.fileno(), *more))
        ours.setblocking(False)
        with ours:
            self._forkserver.errand(request, fds)
            return await asyncio.get_running_loop().sock_recv(ours, _LONGEST_ANSWER)

    async def _errand(self, request: Mapping[str, object], trace: int = -1) -> str:
        """Returns the errand's answer, or why there is none."""
        request = {**request, "timeout": self._config.spank_hook_timeout}
        for _ in range(_TRIES):
            try:
                answer = await self._once(request, [trace] if trace >= 0 else [])
            except (OSError, ForkserverDied) as error:
                return str(error)
            if answer:
                return str(lean_json.load_object(answer)["why"])
        return f"{request['container']} the container: its process died, {_TRIES} times"
