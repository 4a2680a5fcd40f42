"""The defaults of a user's own node, `nodectl --user`: the service's abilities available without root.

Its daemon runs as its user and starts only that user's steps. Steps are tracked by a cgroup where one is delegated, and
by their processes' parents elsewhere. Runs in the daemon and in commands, as that user.
"""

from __future__ import annotations

import os

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from nodectl.model.config.own_node import configuration, runtime_dir, state_dir


def defaults_of_own() -> dict[str, object]:
    """Return the defaults in which the node differs from the service. Raises NotOurs."""
    values: dict[str, object] = {
        "runtime_dir": runtime_dir(),
        "state_dir": state_dir(),
        "plugstack_config": f"{os.path.dirname(configuration())}/plugstack.conf",
    }
    if not has_cgroup():
        values |= {"proctrack_type": "proctrack/linuxproc", "task_plugin": ["task/affinity"]}
    return values


def has_cgroup() -> bool:
    """Return True if the cgroup of this process is delegated to the user.

    `systemd-run --user --scope -p Delegate=yes` does this. Cgroups can be made below a delegated cgroup, and processes
    moved there.
    """
    mount = tree.find_mount()
    own = f"{mount}{cgroup_of()}".rstrip("/")
    return bool(mount) and all(os.access(path, os.W_OK) for path in (own, f"{own}/cgroup.procs"))
