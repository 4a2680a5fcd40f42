"""task/cgroup: gives the step's processes a cgroup of their own and confines it to its CPUs and their memory where the
kernel's cpuset controller is there.

Where: `task_p_pre_setuid`, in the stepd, as root, writes cpuset.cpus and cpuset.mems on the step's `user` cgroup.
Without the controller (a machine whose controllers belong to cgroup v1) nothing is confined: `nodectl doctor` says so.
"""

import errno

from nodectl import cgroup
from nodectl.cpu_list import cpus_of, parse_cpulist
from nodectl.plugin_api import PluginError
from nodectl.step import Step

plugin_type = "task/cgroup"
plugin_name = "task containment by cgroup v2"
plugin_version = (22, 5, 8)


class _Where:
    mount = ""


def init() -> int:
    """Finds the cgroup2 mount; without one the plugin is refused."""
    _Where.mount = cgroup.find_mount()
    if not _Where.mount:
        raise PluginError(
            errno.ENODEV, "no cgroup2 file system is mounted; mount one, or leave task/cgroup out of task_plugin"
        )
    return 0


def task_p_pre_setuid(step: Step) -> int:
    """Stepd, root: confines the step to its CPUs, where the controller is there."""
    user = cgroup.Group(f"{_Where.mount}{step.cgroup}/user").make()
    if not user.has("cpuset.cpus"):
        return 0
    try:
        user.cpuset.cpus = set(cpus_of(step.step_cpus))
        if step.mems:
            user.cpuset.mems = set(parse_cpulist(step.mems))
    except OSError as error:
        raise PluginError(
            error.errno or errno.EIO, f"write {error.filename or user.full_path}: {error.strerror}"
        ) from error
    return 0
