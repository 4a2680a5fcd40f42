"""task/cgroup: gives the step's processes a cgroup of their own, and confines it to what the step may use.

The limits concern CPUs and their memory nodes, memory, swap space, huge pages, processes, CPU time, input and output,
devices.

Where: `task_p_pre_setuid`, in the stepd, as root, writes the daemon's decisions into the step's `user` cgroup
(`cgroup/constraints.py`: the configuration, the request, the available controllers); the job's own limits exist before
the step.
"""

import errno
import os

from nodectl.kernel import _kernel
from nodectl.launch.cgroup import tree
from nodectl.model.step import Step
from nodectl.plugin_api import PluginError

plugin_type = "task/cgroup"
plugin_name = "task containment by cgroup v2"
plugin_version = (22, 5, 8)


class _Where:
    mount = ""


def init() -> int:
    """Find the cgroup2 mount; refuse the plugin if there is none."""
    _Where.mount = tree.find_mount()
    if not _Where.mount:
        raise PluginError(
            errno.ENODEV, "no cgroup2 file system is mounted; mount one, or leave task/cgroup out of task_plugin"
        )
    return 0


def task_p_pre_setuid(step: Step) -> int:
    """Write the step's limits and enable the controllers for the tasks' cgroups. Stepd, root.

    The figures of a task's cgroup tell which task reached a limit.
    """
    user = tree.Group(f"{_Where.mount}{step.cgroup}/user").make()
    try:
        user.enable(user.core.controllers)
        user.write(step.limits)
        if step.device_rules:
            _constrain_devices(user, step)
    except OSError as error:
        raise PluginError(
            error.errno or errno.EIO, f"write {error.filename or user.full_path}: {error.strerror}"
        ) from error
    return 0


def _constrain_devices(user: tree.Group, step: Step) -> None:
    place = user.open()
    try:
        _kernel.constrain_devices(place, step.device_rules)
    except OSError as error:
        raise OSError(error.errno, error.strerror, user.full_path) from None
    finally:
        os.close(place)
