"""Metrics: numbers of the node for monitoring systems, without the name of any user."""

import os
from collections import Counter
from collections.abc import Mapping

from nodectl import __version__
from nodectl.model.states import IN_QUEUE
from nodectl.model.wire.dispatch import Call
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.methods.nodes import Nodes
from nodectl.service.daemon.processes.forkserver_channel import ForkserverChannel

_OF_NODE = ("name", "state", "cpus", "cpus_used", "memory", "memory_used", "gres", "gres_used")


class Metrics:
    """The Metrics method of the node."""

    def __init__(self, nodes: Nodes, registry: Registry, store: Store, forkserver: ForkserverChannel) -> None:
        self._nodes = nodes
        self._registry = registry
        self._store = store
        self._forkserver = forkserver

    def metrics(self, call: Call) -> Mapping[str, object]:
        """Return the metrics. A caller may ask every second: the method walks over the queue once."""
        jobs = Counter(dict.fromkeys(IN_QUEUE, 0))
        jobs.update(self._nodes.states())
        found: list[Mapping[str, object]] = self._nodes.nodes(call)["nodes"]  # type: ignore[assignment]  # its rows
        memory = {"daemon": _resident(os.getpid()), "forkserver": _resident(self._forkserver.pid)}
        return {
            "metrics": {
                "version": __version__,
                "jobs": dict(jobs),
                "steps_running": len(self._registry.live),
                "nodes": [{name: node[name] for name in _OF_NODE} for node in found],
                "resident": {process: size for process, size in memory.items() if size},
                **self._store.counters.told(),
            }
        }


def _resident(pid: int) -> int:
    """Return the resident memory of a process in bytes, 0 for no process."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
