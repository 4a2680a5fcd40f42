"""The watch over what runs outside of jobs: the fence around logins, and users' programs that use a device.

A process of its own looks (`foreign_look.py`). Used only from the event loop, in the daemon of root.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodectl import messages
from nodectl.launch.cgroup import corner, device_access
from nodectl.launch.cgroup.delegation import Base
from nodectl.model.config import Config
from nodectl.model.node_device import NodeDevice
from nodectl.model.wire import lean_json
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.service.daemon.processes.reporting_process import ReportingProcess

_LOOK = "nodectl.service.daemon.jobs.foreign_look"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
_PATIENCE = 10.0  # seconds, for a look
_PERIOD = 20.0
_UNKNOWN = "may be used outside of all jobs: the service has not looked yet"


class ForeignUse:
    """The watch of a node. `uses`: the programs, as `foreign_look` reports them. `trouble`: why there is no wall.

    `on_change` is called with words about each device that jobs may not have for now, by its key.
    """

    on_change: Callable[[Mapping[str, str]], None]

    def __init__(self, config: Config, base: Base, scope: str, devices: Sequence[NodeDevice]) -> None:
        self._config = config
        self._base = base
        self._scope = scope
        self._devices = devices
        self._tasks = BackgroundTasks()
        self._timer: asyncio.TimerHandle | None = None
        self._process: ReportingProcess | None = None
        self._away: Mapping[str, str] = {}
        self.uses: list[Mapping[str, Any]] = []
        self.trouble = ""
        self.looked = 0.0  # when the latest look ended

    def keep_fence(self) -> None:
        """Renew the fence, if any."""
        before, self.trouble = self.trouble, corner.keep(self._config, self._devices)
        if self.trouble and self.trouble != before:
            messages.tell("fence-fails", self.trouble)

    def begin(self) -> None:
        """Begin to watch, after the queue is restored and before it starts a job: until the first look no job gets a
        device. A node without devices has nothing to look for.
        """
        if any(device.file for device in self._devices):
            self._withhold({key: _UNKNOWN for keys in self._nodes().values() for key in keys})
            self._tick()

    def stop(self) -> None:
        """End the watch."""
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._process.kill()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_PERIOD, self._tick)
        self.keep_fence()
        nodes = self._nodes()
        if nodes and not (self._process is not None and self._process.running):
            self._tasks.begin(self._look([[*node, keys] for node, keys in nodes.items()]))

    def _nodes(self) -> Mapping[tuple[int, int, int], list[str]]:
        """Return the devices to look for, by their files, which drivers make late. Without cgroups there are none."""
        return device_access.keys_by_node(self._devices) if self._base.path else {}

    async def _look(self, nodes: list[list[object]]) -> None:
        arguments = {
            "nodes": nodes, "base": self._base.path, "scope": self._scope, "outside": list(self._config.login_outside),
        }  # fmt: skip
        try:
            self._process = process = ReportingProcess(_LOOK, arguments, environment=_ENVIRONMENT, seconds=_PATIENCE)
            await asyncio.wait_for(process.reported(), _PATIENCE)
            found: Any = lean_json.load_object(process.results[-1].encode())["uses"] if process.results else None
        except (OSError, TimeoutError, lean_json.BadJson):
            return  # the last look still counts
        if found is not None:
            self._take(found)

    def _take(self, found: list[Mapping[str, Any]]) -> None:
        known = {(use["device"], use["pid"]) for use in self.uses}
        for use in found:
            if (use["device"], use["pid"]) not in known:
                line = f"{use['device']} is used outside of all jobs: {corner.words_of(use)}"
                messages.tell("device-used-outside", line, uid=use["uid"])
        self.uses = found
        self.looked = time.time()
        self._withhold({use["device"]: f"is used outside of all jobs{self._named(use)}" for use in reversed(found)})

    def _named(self, use: Mapping[str, Any]) -> str:
        """Return words about the program for users with waiting jobs, "" where users know nothing of each other."""
        return "" if "jobs" in self._config.private_data else f": {corner.words_of(use)}"

    def _withhold(self, away: Mapping[str, str]) -> None:
        """Give no job these devices, if configured; `away` has the reasons by key."""
        if self._config.foreign_gpu_use == "wait" and away != self._away:
            self._away = away
            self.on_change(away)
