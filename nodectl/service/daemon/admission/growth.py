"""Growth of a running job: a larger share for the job's cgroup and the first step's file, for later steps and daemons.

The first step's file keeps the job's share. Running steps keep their CPUs; the job's memory is shared with them, so the
first step's limit is raised with it. The daemon writes as root; a repeated write has the same result.
"""

import asyncio
import copy
import os

from nodectl.launch.cgroup import tree
from nodectl.launch.cgroup.constraints import Constraints
from nodectl.model.step import Step
from nodectl.service.daemon.admission.binder import Binder
from nodectl.service.daemon.steps.live import LiveStep

_USER = "/user"
_MEMORY = ("memory.max", "memory.high", "memory.swap.max")
_PATIENCE = 1.0  # seconds for a stepd, which does not answer during a plugin's hook


class Growth:
    """The growth of the node's jobs. `mount` is the cgroup2 mount."""

    def __init__(self, mount: str, binder: Binder, constraints: Constraints) -> None:
        self._mount = mount
        self._binder = binder
        self._constraints = constraints

    async def grow(self, first: LiveStep, mask: int, memory: int) -> None:
        """Give the job of this first step all CPUs of the mask, and `memory` MiB (0: no limit). Raises OSError."""
        async with first.updating:
            old, new = first.step, copy.copy(first.step)
            new.allocation, new.memory, new.cores = mask, memory, self._binder.cores_of(mask)
            of_job, of_step = self._constraints.of_job(new).files, self._constraints.of_step(new).files
            of_tasks = {name: of_step[name] for name in _MEMORY if name in of_step}
            new.limits = {**old.limits, **of_tasks}
            if old.cgroup:
                await asyncio.to_thread(self._write, old, of_job, of_tasks)
            first.files.rewrite_spec(new)
            for name in ("allocation", "cores", "memory", "limits"):
                setattr(old, name, getattr(new, name))
            await first.ask("Confine", {"memory": memory, "limits": of_tasks}, _PATIENCE)

    def _write(self, step: Step, of_job: dict[str, str], of_tasks: dict[str, str]) -> None:
        path = f"{self._mount}{step.cgroup}"
        tree.Group(os.path.dirname(path)).write(of_job)
        tasks = tree.Group(f"{path}{_USER}")
        if tasks.exists():
            tasks.write(of_tasks)
