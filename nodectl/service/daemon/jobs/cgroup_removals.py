"""The removal of the cgroups of jobs and steps by the daemon; `nodectl/launch/cgroup/tree.py` makes the cgroups."""

import asyncio
import os
import time

from nodectl import messages
from nodectl.launch.cgroup import slurms, tree
from nodectl.service.daemon.jobs.background_tasks import TimeToEnd

_TRIES = 60
_PATIENCE = 8  # of these, half a second, while another process holds Slurm's lock
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.5
_RUNNERS_SECONDS = 1.0


async def remove_step_cgroup(mount: str, path: str) -> bool:
    """Kill the remaining processes in a step's cgroup and remove the cgroup, and the job's if empty. Return True when
    all is gone.

    "" is no cgroup. A process leaves its cgroup a moment after its last descriptor closes, so the first tries may find
    the cgroup busy.
    """
    if not path:
        return True
    group = tree.Group(mount + path)
    pause = _FIRST_PAUSE
    for tried in range(_TRIES):
        if try_to_remove(group, patient=tried < _PATIENCE):
            return True
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        end_what_is_left(group)
    messages.tell("cgroup-stays", f"{path}: cannot be removed, processes {group.pids()} do not die")
    return False


def end_what_is_left(group: tree.Group) -> None:
    """Send SIGKILL to the remaining processes in a step's cgroup, and in the stepd's cgroup."""
    for one in {group.full_path, slurms.stepd_path(group.full_path)}:
        if (left := tree.Group(one)).populated():
            left.kill_all()


def try_to_remove(group: tree.Group, *, patient: bool = True) -> bool:
    """Try once. Return True when the step's cgroup is gone or never existed, and the job's with the last step.

    `patient`: see `slurms.remove`.
    """
    # An orderly step runner leaves only these, so no directory has to be read.
    if not (group.remove() or (tree.Group(slurms.stepd_path(group.full_path)).remove() and group.remove())):
        for directory, _, _ in os.walk(group.full_path, topdown=False):
            if not tree.Group(directory).remove():
                return False
        if group.exists():
            return False  # it could not be read: there are no descriptors left
    if slurms.is_within(group.full_path):
        return slurms.remove(group, patient=patient)
    job = tree.Group(os.path.dirname(group.full_path))
    return job.remove() or job.has_children()  # whose removal removes the job's


def remove_base(path: str, *, steps_run: bool) -> None:
    """Remove the base cgroup of jobs at the daemon's end, unless steps run.

    Runners waiting for a step end with the forkserver, which has just been told to end.
    """
    base, end = tree.Group(path), time.monotonic() + _RUNNERS_SECONDS
    while not steps_run and not base.child(tree.RUNNERS).remove() and time.monotonic() < end:
        time.sleep(_FIRST_PAUSE)
    base.remove()


class CgroupRemovals:
    """The removals of step cgroups below a mount of cgroup2, also in the background.

    A removal goes by the path of the cgroup, and kills the processes there. A job that runs again has the same paths:
    it waits until nothing of its earlier run is being removed (`job_gone`).
    """

    def __init__(self, mount: str) -> None:
        self._mount = mount
        self._under_way: dict[str, asyncio.Task[bool]] = {}

    def begin(self, path: str) -> None:
        """Remove a step's cgroup, "" for none: in the background if processes are left there."""
        if not path or path in self._under_way or try_to_remove(tree.Group(self._mount + path)):
            return
        task = asyncio.get_running_loop().create_task(remove_step_cgroup(self._mount, path))
        self._under_way[path] = task
        task.add_done_callback(lambda _: self._under_way.pop(path))

    def is_removing(self, path: str) -> bool:
        """Return True while this cgroup is being removed."""
        return path in self._under_way

    async def gone(self, path: str) -> None:
        """Empty and remove a step's cgroup. Return afterwards, or when the processes do not die."""
        self.begin(path)
        if path in self._under_way:
            await asyncio.wait([self._under_way[path]])

    async def job_gone(self, step_path: str) -> None:
        """Wait until no step's cgroup of this step's job is being removed; "" is none."""
        job = os.path.dirname(step_path)
        while under_way := [task for path, task in self._under_way.items() if os.path.dirname(path) == job]:
            await asyncio.wait(under_way)

    async def settle(self, to_end: TimeToEnd) -> None:
        """Wait for the removals under way before the daemon ends. The next daemon sweeps the rest."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=to_end.left())
