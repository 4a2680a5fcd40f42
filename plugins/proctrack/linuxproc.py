"""proctrack/linuxproc: a step's processes are the descendants of its stepd, found in /proc.

For machines without cgroup v2. The container id is the stepd's pid. As the stepd is a subreaper (prctl(2),
PR_SET_CHILD_SUBREAPER), a process that daemonizes becomes its child and is still found.
"""

import errno
import os

from nodectl.kernel import signals
from nodectl.kernel.children import NO_CHILD, next_to_collect
from nodectl.model.step import Step
from nodectl.plugin_api import PluginError

plugin_type = "proctrack/linuxproc"
plugin_name = "process tracking by /proc"
plugin_version = (22, 5, 8)

_ROUNDS = 1000


class _State:
    helpers: set[int] = set()  # noqa: RUF012  # the step's own, looked at each time


def proctrack_p_create(step: Step) -> int:
    """Set the stepd's pid as the container id."""
    step.container_id = os.getpid()
    _State.helpers = step.helpers
    return 0


def proctrack_p_add(step: Step, pid: int) -> int:
    """Do nothing: a task is a child of the stepd."""
    return 0


def proctrack_p_signal(cont_id: int, signal: int) -> int:
    """Signal every descendant; with SIGKILL also each new descendant."""
    signals.send_each(lambda: proctrack_p_get_pids(cont_id), signal, lambda pid: _descends(pid, cont_id))
    return 0


def proctrack_p_wait(cont_id: int) -> int:
    """Kill and wait until no descendant lives."""
    left = signals.kill_each(lambda: proctrack_p_get_pids(cont_id), lambda pid: _descends(pid, cont_id), rounds=_ROUNDS)
    if left:
        raise PluginError(errno.ETIMEDOUT, f"processes {left} do not die")
    return 0


def proctrack_p_destroy(cont_id: int) -> int:
    """Do nothing: there is nothing to undo."""
    return 0


def proctrack_p_find(pid: int) -> int:
    """Return this stepd's pid for a descendant, else 0."""
    own = os.getpid()
    return own if pid in proctrack_p_get_pids(own) else 0


def proctrack_p_has_pid(cont_id: int, pid: int) -> int:
    """Return 1 if the process descends from the stepd, else 0."""
    return int(pid in proctrack_p_get_pids(cont_id))


def proctrack_p_get_pids(cont_id: int) -> list[int]:
    """Return the pids of all living descendants of the stepd, without helpers and zombies."""
    if cont_id == os.getpid() and next_to_collect() == NO_CHILD:
        return []  # orphans are a subreaper's children: without a child it has no descendant, whatever /proc lists
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            parent, state = _parent_and_state(int(name))
            if state not in "ZX":
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [cont_id]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [pid for pid in found if pid not in _State.helpers]


def _descends(pid: int, cont_id: int) -> bool:
    above = pid
    while above > 1:
        above, _ = _parent_and_state(above)
        if above == cont_id:
            return pid not in _State.helpers
    return False


def _parent_and_state(pid: int) -> tuple[int, str]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return 0, "X"
    return int(fields[1]), fields[0].decode()
