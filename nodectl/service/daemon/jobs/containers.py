"""The daemon's part in job containers: deletion, restoration, visits, and reports of a new configuration to the plugin.

A container belongs to the plugin that made it, whatever the configuration says later. The job's first step names that
plugin; the history notes which plugins have made containers, and where.

Processes of the forkserver do the work (`nodectl/launch/forkserver/container_requests.py`). The daemon asks for them
and waits. When one dies without an answer, the daemon asks again.
"""

import asyncio
import contextlib
import os
import socket
import sqlite3
from collections.abc import Callable, Iterable, Mapping

from nodectl import messages
from nodectl.launch.container import LOCK, settings
from nodectl.model import launch_order
from nodectl.model.config import Config
from nodectl.model.step import Step
from nodectl.model.wire import framing, lean_json
from nodectl.model.wire.dispatch import Call
from nodectl.plugin_host.node_plugins import NodePlugins
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.processes import copied_descriptors
from nodectl.service.daemon.processes.forkserver_channel import ForkserverChannel, ForkserverDied
from nodectl.service.daemon.steps.live import LiveStep

_TRIES = 3
_LONGEST_ANSWER = 65536


class Containers:
    """The containers of the node's jobs. `unfinished()` returns the steps of jobs not yet over."""

    def __init__(  # all parts that containers need
        self, config: Config, plugins: NodePlugins, store: Store, forkserver: ForkserverChannel,
        unfinished: Callable[[], Iterable[LiveStep]],
    ) -> None:  # fmt: skip
        self._config = config
        self._forkserver = forkserver
        self._store = store
        self._unfinished = unfinished
        self._hooks = plugins.container.hooks
        self._restoring: asyncio.Task[None] | None = None

    def must_delete(self, step: Step) -> bool:
        """Return True when the job ends with this step and the container has to be deleted."""
        if not step.is_first or not step.container:
            return False
        return (
            step.container_plugin != self._config.job_container_type
            or launch_order.CONTAINER_DELETE.call in self._hooks
        )

    def earlier_plugins(self) -> list[str]:
        """Return the plugins, except the configured plugin, which have containers or may have."""
        found = {live.step.container_plugin for live in self._unfinished()}
        found |= {plugin for plugin, _ in self._store.containers()}
        return sorted(found - {self._config.job_container_type})

    async def delete(self, live: LiveStep) -> str:
        """Delete the container of an ended job. Return the error as a single line, also logged; "" for none."""
        trace = live.files.append_trace() if self._config.trace else -1
        try:
            why = await self._request({"container": "delete", "spec": live.files.spec}, trace)
        finally:
            if trace >= 0:
                os.close(trace)
        if why:
            why = f"job {live.step.job_id}: {why}"
            messages.tell("container-failed", why, job=live.step.job_id, uid=live.step.uid)
        else:
            live.container_deleted = True
            self._forget_unused((live.step.container_plugin, str(live.step.container["base"])))
        return why

    def restore(self) -> None:
        """Remove, in the background, the containers of jobs no longer present. Called after the daemon's start."""
        self._note_place()
        if places := self._store.containers():
            self._restoring = asyncio.get_running_loop().create_task(self._restore(places))

    def _place(self) -> tuple[str, str]:
        """Return the plugin and the base directory of new containers."""
        return self._config.job_container_type, settings.base_path(self._config)

    def _note_place(self) -> None:
        """Note the place before a container is made, so later daemons find a container left after the end of a job."""
        if launch_order.CONTAINER_RESTORE in self._hooks:
            try:
                self._store.note_containers(*self._place())
            except sqlite3.Error as error:
                messages.tell("container-not-noted", f"note in the history where containers lie: {error}")

    async def _restore(self, places: Iterable[tuple[str, str]]) -> None:
        for place in places:
            plugin, base = place
            why = await self._request({"container": "restore", "plugin": plugin, "base": base})
            if why:
                messages.tell("container-failed", f"restore containers: {why}")
            else:
                self._forget_unused(place)

    def _forget_unused(self, place: tuple[str, str]) -> None:
        """Forget an unused place, in which no new container will be made, once the last container is gone."""
        used = {
            (live.step.container_plugin, live.step.container["base"])
            for live in self._unfinished()
            if live.step.container and not live.container_deleted
        }
        if place != self._place() and place not in used and not _any_in(place[1]):
            with contextlib.suppress(sqlite3.Error):  # the next daemon finds nothing there, and forgets it
                self._store.forget_containers(*place)

    def reconfigure(self, config: Config) -> None:
        """Report the new configuration after SIGHUP to the plugin in the forkserver, for use by later steps."""
        self._config = config
        self._note_place()
        if launch_order.CONTAINER_RECONFIG in self._hooks:
            try:
                self._forkserver.request_container(
                    {"container": "reconfigure", "timeout": self._config.spank_hook_timeout}, []
                )
            except ForkserverDied as error:
                messages.tell("container-failed", f"{launch_order.CONTAINER_RECONFIG}: {error}")

    async def settle(self) -> None:
        """Stop waiting before the daemon ends. Work under way continues without the daemon."""
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])

    async def enter(self, request: Mapping[str, object], call: Call) -> Mapping[str, object]:
        """Bring a program or a file into a container (`launch/forkserver/enter.py`). Return the answer: why, status.

        The descriptors of the call go to the container process as soon as it runs as the user.
        """
        answer = await self._request_once(request, [], lambda way: call.hand_over({}, [way]))
        return lean_json.load_object(answer) if answer else {"why": "its process died", "status": 1}

    async def _request_once(
        self, request: Mapping[str, object], more: list[int], on_ready: Callable[[int], None] = os.close
    ) -> bytes:
        """Return the answer of the container process, b"" where the process died. Raises OSError, ForkserverDied.

        `on_ready` gets the socket to which the descriptors of a call are sent.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with ours:
            with theirs:
                framing.hand_over(ours, more)
                fds = copied_descriptors.copies([theirs.fileno()])
            self._forkserver.request_container(request, fds)
            try:
                answer, fds = await _receive(ours)
                if answer and "ready" in lean_json.load_object(answer):
                    on_ready(*framing.exactly(1, fds))
                    answer, _ = await _receive(ours)
                return answer
            except ConnectionResetError:  # the process died before it read the handed-over descriptors
                return b""

    async def _request(self, request: Mapping[str, object], trace: int = -1) -> str:
        """Ask the container process, again where the process dies. Return the error, "" for none."""
        request = {**request, "timeout": self._config.spank_hook_timeout}
        for _ in range(_TRIES):
            try:
                answer = await self._request_once(request, [trace] if trace >= 0 else [])
            except (OSError, ForkserverDied) as error:
                return str(error)
            if answer:
                return str(lean_json.load_object(answer)["why"])
        return f"{request['container']} the container: its process died, {_TRIES} times"


async def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next packet, with at most one descriptor. Raises OSError."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return framing.receive_packet(sock, _LONGEST_ANSWER, 1)
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(sock, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(sock)


def _any_in(directory: str) -> bool:
    """Return True where the directory has containers, including containers being removed."""
    try:
        return any(name != LOCK for name in os.listdir(directory))
    except FileNotFoundError:
        return False
