"""The cgroups of jobs and steps: the daemon makes and removes them (`nodectl/cgroup/tree.py` says where they are)."""

import asyncio
import os
import time
from collections.abc import Sequence

from nodectl import messages
from nodectl.cgroup import tree
from nodectl.cgroup.constraints import Confinement
from nodectl.cgroup.device_access import Rules
from nodectl.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.kernel import _kernel

_STEPD = "stepd"
_TRIES = 60
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.5
_SETTLE_SECONDS = 10
_RUNNERS_SECONDS = 1.0


def make_step_cgroup(mount: str, path: str, confinement: Confinement, controllers: Sequence[str]) -> None:
    """Makes job_J with its limits, and step_S. `controllers`, which the base has enabled, are enabled all the way down.
    Raises OSError.
    """
    job, step = tree.Group(mount + os.path.dirname(path)).make(), tree.Group(mount + path)
    job.enable(controllers)
    job.write(confinement.files)
    if confinement.device_rules:
        _constrain_devices(job, confinement.device_rules)
    step.make().enable(controllers)


def _constrain_devices(job: tree.Group, rules: Rules) -> None:
    """Attaches the device program, unless an earlier step of the job has done so."""
    fd = job.open()
    try:
        if not _kernel.device_programs(fd):
            _kernel.constrain_devices(fd, rules)
    finally:
        os.close(fd)


async def remove_step_cgroup(mount: str, path: str) -> bool:
    """Kills what is left in a step's cgroup and removes it, and its job's if that is empty. True when all is gone. ""
    is no cgroup.

    A process leaves its cgroup a moment after its last descriptor closes, so the first tries may find it busy.
    """
    if not path:
        return True
    group = tree.Group(mount + path)
    pause = _FIRST_PAUSE
    for _ in range(_TRIES):
        if try_to_remove(group):
            return True
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        if group.populated():
            group.kill_all()
    messages.tell("cgroup-stays", f"{path}: cannot be removed, processes {group.pids()} do not die")
    return False


def try_to_remove(group: tree.Group) -> bool:
    """Tries once. True when the step's cgroup is gone, or was never made."""
    # What an orderly step runner leaves: nobody has to look what there is.
    if not (group.remove() or (group.child(_STEPD).remove() and group.remove())):
        for directory, _, _ in os.walk(group.full_path, topdown=False):
            if not tree.Group(directory).remove():
                return False
        if group.exists():
            return False  # it could not be read: there are no descriptors left
    tree.Group(os.path.dirname(group.full_path)).remove()  # the job's, if this was its last step
    return True


def remove_base(path: str, *, steps_run: bool) -> None:
    """At the daemon's end: removes the cgroup below which jobs were, unless steps run. Runners that wait for a step end
    with the forkserver, which has just been told to.
    """
    base, end = tree.Group(path), time.monotonic() + _RUNNERS_SECONDS
    while not steps_run and not base.child(tree.RUNNERS).remove() and time.monotonic() < end:
        time.sleep(_FIRST_PAUSE)
    base.remove()


class CgroupRemovals:
    """Cgroups of steps that are being emptied and removed in the background, below one mount of cgroup2."""

    def __init__(self, mount: str) -> None:
        self._mount = mount
        self._tasks = BackgroundTasks()

    def begin(self, path: str) -> None:
        """Empties and removes a step's cgroup; "" is none."""
        if path:
            self._tasks.begin(remove_step_cgroup(self._mount, path))

    async def settle(self) -> None:
        """Before the daemon ends: what is being removed is removed, if that takes no longer than this."""
        await self._tasks.finish(_SETTLE_SECONDS)
