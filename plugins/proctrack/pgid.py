"""proctrack/pgid: a step's processes are those of its tasks' process group.

The simplest tracker, and a leaky one: a program that calls setsid(2) or setpgid(2) is no longer found. The container
id is the process group of task 0.
"""

import errno
import os
import time

from nodectl.plugin_api import PluginError
from nodectl.step import Step

plugin_type = "proctrack/pgid"
plugin_name = "process tracking by process group"
plugin_version = (22, 5, 8)

_ROUNDS = 600


class _State:
    group = 0


def proctrack_p_create(step: Step) -> int:
    """The group does not exist yet: the first task makes it. Until then the stepd's pid stands for the container."""
    step.container_id = os.getpid()
    return 0


def proctrack_p_add(step: Step, pid: int) -> int:
    """The first task's process group becomes the container."""
    if not _State.group:
        _State.group = pid
        step.container_id = pid
    return 0


def proctrack_p_signal(cont_id: int, signal: int) -> int:
    """killpg(2)."""
    if cont_id == os.getpid():
        return 0  # no task was ever forked
    try:
        os.killpg(cont_id, signal)
    except ProcessLookupError:
        pass
    return 0


def proctrack_p_wait(cont_id: int) -> int:
    """Until the group is empty."""
    for round_ in range(_ROUNDS):
        if not proctrack_p_get_pids(cont_id):
            return 0
        proctrack_p_signal(cont_id, 9)
        time.sleep(min(0.001 * 2**round_, 0.1))
    raise PluginError(errno.ETIMEDOUT, f"processes {proctrack_p_get_pids(cont_id)} do not die")


def proctrack_p_destroy(cont_id: int) -> int:
    """Forgets the group."""
    del cont_id
    _State.group = 0
    return 0


def proctrack_p_find(pid: int) -> int:
    """The group if the process is in it, else 0."""
    try:
        return _State.group if os.getpgid(pid) == _State.group else 0
    except ProcessLookupError:
        return 0


def proctrack_p_has_pid(cont_id: int, pid: int) -> int:
    """1 when the process is in the group."""
    return int(cont_id != 0 and proctrack_p_find(pid) == cont_id)


def proctrack_p_get_pids(cont_id: int) -> list[int]:
    """Living members of the group, zombies left out."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b") ")[2].split()
            except OSError:
                continue
            if int(fields[2]) == cont_id and fields[0] not in (b"Z", b"X"):
                found.append(int(name))
    return found
