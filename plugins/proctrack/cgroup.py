"""proctrack/cgroup: a step's processes are those in its cgroup, however they daemonize.

The container id is the cgroup's id, 64 bits (the inode number of its directory). Killing is cgroup.kill; nothing
escapes, because only root can leave a cgroup.
"""

import errno
import os
import time

from nodectl.cgroup import tree
from nodectl.kernel import signals
from nodectl.kernel.children import dumps_core
from nodectl.kernel.processes import cgroup_of
from nodectl.model.step import Step
from nodectl.plugin_api import PluginError

plugin_type = "proctrack/cgroup"
plugin_name = "process tracking by cgroup v2"
plugin_version = (22, 5, 8)

_STOP, _CONT = 19, 18
_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.5
_LONGEST_DUMP = 30.0


class _State:
    """What this process knows: the mount, and the cgroups of the containers it made."""

    mount = ""
    groups: dict[int, tree.Group] = {}  # noqa: RUF012  # one per process, by design
    patience: dict[int, float] = {}  # noqa: RUF012
    dumps: dict[int, float] = {}  # noqa: RUF012


def init() -> int:
    """Finds the cgroup2 mount; without one the plugin is refused."""
    _State.mount = tree.find_mount()
    if not _State.mount:
        raise PluginError(
            errno.ENODEV, "no cgroup2 file system is mounted; mount one, or set proctrack_type = proctrack/linuxproc"
        )
    return 0


def proctrack_p_create(step: Step) -> int:
    """Makes the step's `user` cgroup; its inode number is the container id."""
    group = tree.Group(f"{_State.mount}{step.cgroup}/user").make()
    step.container_id = group.number()
    _State.groups[step.container_id] = group
    _State.patience[step.container_id] = step.unkillable_timeout
    # A hook that overran its time would not kill at all.
    _State.dumps[step.container_id] = min(_LONGEST_DUMP, step.hook_timeout / 2 or _LONGEST_DUMP)
    return 0


def proctrack_p_add(step: Step, pid: int) -> int:
    """Tasks are born in the step's cgroup; one that was not is moved."""
    if not step.forked_into_cgroup and proctrack_p_find(pid) != step.container_id:
        try:
            _group(step.container_id).add(pid)
        except ProcessLookupError:
            return 0  # it has ended already
    return 0


def proctrack_p_signal(cont_id: int, signal: int) -> int:
    """SIGKILL by cgroup.kill, when no core is being written; SIGSTOP by the freezer; others process by process, and
    after SIGCONT the thaw. A server of the tasks gets no SIGKILL here: it has to tidy up, and is killed by
    `proctrack_p_wait` if it has not ended by then.
    """
    group = _group(cont_id)
    if signal == _STOP:
        group.core.freeze = True
        return 0
    if signal == 9:  # SIGKILL
        if group.populated():
            _let_dump(group, _State.dumps.get(cont_id, _LONGEST_DUMP))
            _kill_tasks(group)
        return 0

    def group_holds(pid: int) -> bool:
        return proctrack_p_find(pid) == cont_id

    for pid in group.pids():
        signals.send_listed(pid, signal, group_holds)
    if signal == _CONT:
        group.core.freeze = False
    return 0


def proctrack_p_wait(cont_id: int) -> int:
    """Until the container is empty; a process that cannot die (it hangs in the kernel) is given up with ETIMEDOUT."""
    group = _group(cont_id)
    deadline = time.monotonic() + _State.patience.get(cont_id, 60)
    pause = _FIRST_PAUSE
    while group.populated():
        if time.monotonic() > deadline:
            raise PluginError(errno.ETIMEDOUT, f"processes {group.pids()} do not die")
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        group.kill_all()
    return 0


def proctrack_p_destroy(cont_id: int) -> int:
    """Forgets the container; its directories are removed by the stepd and the daemon."""
    _State.groups.pop(cont_id, None)
    _State.patience.pop(cont_id, None)
    _State.dumps.pop(cont_id, None)
    return 0


def proctrack_p_find(pid: int) -> int:
    """The container a process is in, 0 for none of ours."""
    place = cgroup_of(pid)
    for cont_id, group in _State.groups.items():
        inside = group.full_path.removeprefix(_State.mount)
        if place == inside or place.startswith(f"{inside}/"):
            return cont_id
    return 0


def proctrack_p_has_pid(cont_id: int, pid: int) -> int:
    """1 when the process is in the container."""
    return int(proctrack_p_find(pid) == cont_id)


def proctrack_p_get_pids(cont_id: int) -> list[int]:
    """Every process of the container."""
    return _group(cont_id).pids()


def _kill_tasks(group: tree.Group) -> None:
    """Kills everything but what is in the cgroup of the MPI plugin's server."""
    if not group.child(tree.MPI).exists():
        group.kill_all()
        return
    fd = group.open()
    try:
        names = os.listdir(fd)
    finally:
        os.close(fd)
    for name in names:
        if name.startswith("task_"):
            group.child(name).kill_all()
    for pid in group.core.procs:  # moved here
        signals.send_listed(pid, signals.KILL, group.holds)


def _let_dump(group: tree.Group, patience: float) -> None:
    """Waits while a process writes its core, which would be cut off."""
    deadline = time.monotonic() + patience
    while any(map(dumps_core, group.pids())) and time.monotonic() < deadline:
        time.sleep(_LONGEST_PAUSE)


def _group(cont_id: int) -> tree.Group:
    if cont_id not in _State.groups:
        raise PluginError(errno.ENOENT, f"no container {cont_id}")
    return _State.groups[cont_id]
