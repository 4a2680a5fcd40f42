"""proctrack/cgroup: a step's processes are those in its cgroup, however they daemonize.

The container id is the cgroup's id, 64 bits (the inode number of its directory). Killing is cgroup.kill; nothing
escapes, because only root can leave a cgroup.
"""

import errno
import os
import time

from nodectl.kernel import signals
from nodectl.kernel.children import dumps_core
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
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
    """The cgroup2 mount and the containers made by this process."""

    mount = ""
    groups: dict[int, tree.Group] = {}  # noqa: RUF012  # one per process, by design
    patience: dict[int, float] = {}  # noqa: RUF012
    dumps: dict[int, float] = {}  # noqa: RUF012


def init() -> int:
    """Find the cgroup2 mount; refuse the plugin if there is none."""
    _State.mount = tree.find_mount()
    if not _State.mount:
        raise PluginError(
            errno.ENODEV, "no cgroup2 file system is mounted; mount one, or set proctrack_type = proctrack/linuxproc"
        )
    return 0


def proctrack_p_create(step: Step) -> int:
    """Make the step's `user` cgroup; the cgroup's inode number is the container id."""
    group = tree.Group(f"{_State.mount}{step.cgroup}/user").make()
    step.container_id = group.number()
    _State.groups[step.container_id] = group
    _State.patience[step.container_id] = step.unkillable_timeout
    # A hook that exceeds its time limit kills nothing.
    _State.dumps[step.container_id] = min(_LONGEST_DUMP, step.hook_timeout / 2 or _LONGEST_DUMP)
    return 0


def proctrack_p_add(step: Step, pid: int) -> int:
    """Move a task into the step's cgroup unless the kernel forked the task there."""
    if not step.forked_into_cgroup and proctrack_p_find(pid) != step.container_id:
        try:
            _group(step.container_id).add(pid)
        except ProcessLookupError:
            return 0  # it has ended already
    return 0


def proctrack_p_signal(cont_id: int, signal: int) -> int:
    """Send a signal to every process of the container.

    SIGKILL uses cgroup.kill, after running core dumps have ended; SIGSTOP uses the freezer. Other signals go to each
    process, and SIGCONT then thaws the cgroup. The tasks' MPI server gets no SIGKILL here, because it has to clean up;
    `proctrack_p_wait` kills it if it has not ended by then.
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
    """Kill and wait until the container is empty. Raises PluginError with ETIMEDOUT for a process hanging in the
    kernel.
    """
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
    """Forget the container; the stepd and the daemon remove the directories."""
    _State.groups.pop(cont_id, None)
    _State.patience.pop(cont_id, None)
    _State.dumps.pop(cont_id, None)
    return 0


def proctrack_p_find(pid: int) -> int:
    """Return the id of the process's container, 0 for a process outside of this stepd's containers."""
    place = cgroup_of(pid)
    for cont_id, group in _State.groups.items():
        inside = group.full_path.removeprefix(_State.mount)
        if place == inside or place.startswith(f"{inside}/"):
            return cont_id
    return 0


def proctrack_p_has_pid(cont_id: int, pid: int) -> int:
    """Return 1 if the process is in the container, else 0."""
    return int(proctrack_p_find(pid) == cont_id)


def proctrack_p_get_pids(cont_id: int) -> list[int]:
    """Return the pids of all processes of the container."""
    return _group(cont_id).pids()


def _kill_tasks(group: tree.Group) -> None:
    """Kill all processes except the MPI plugin's server (in a separate cgroup)."""
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
    """Wait while a process writes a core file, because SIGKILL would cut the file off."""
    deadline = time.monotonic() + patience
    while any(map(dumps_core, group.pids())) and time.monotonic() < deadline:
        time.sleep(_LONGEST_PAUSE)


def _group(cont_id: int) -> tree.Group:
    if cont_id not in _State.groups:
        raise PluginError(errno.ENOENT, f"no container {cont_id}")
    return _State.groups[cont_id]
