"""The defaults of a node of a user's own, `nodectl --user`: what a user can have without root.

Its daemon runs as its user and starts steps of nobody else. Steps are tracked by a cgroup where one is delegated, and
by their processes' parents where none is. Runs in the daemon and in commands, as that user.
"""

from __future__ import annotations

import os

from nodectl.cgroup import tree
from nodectl.config.own_node import configuration, runtime_dir, state_dir
from nodectl.kernel.processes import cgroup_of


def defaults_of_own() -> dict[str, object]:
    """The keys whose defaults are others than the service's. Raises NotOurs."""
    values: dict[str, object] = {
        "runtime_dir": runtime_dir(),
        "state_dir": state_dir(),
        "plugstack_config": f"{os.path.dirname(configuration())}/plugstack.conf",
    }
    if not has_cgroup():
        values |= {"proctrack_type": "proctrack/linuxproc", "task_plugin": ["task/affinity"]}
    return values


def has_cgroup() -> bool:
    """Whether the cgroup of this process was delegated to its user, as by `systemd-run --user --scope -p
    Delegate=yes`: cgroups can be made below it, and processes moved there.
    """
    mount = tree.find_mount()
    own = f"{mount}{cgroup_of()}".rstrip("/")
    return bool(mount) and all(os.access(path, os.W_OK) for path in (own, f"{own}/cgroup.procs"))
