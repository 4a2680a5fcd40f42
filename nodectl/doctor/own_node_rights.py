"""What a node of a user's own has of its user's rights, and what of a service's it lacks."""

import os
from collections.abc import Iterator

from nodectl.config import Config
from nodectl.config_file.own_node import has_cgroup
from nodectl.doctor.check import OK, WARN, Check
from nodectl.spank.left_out import left_out

_DELEGATED = "systemd-run --user --scope -p Delegate=yes nodectl --user daemon"


def all_checks(config: Config) -> Iterator[Check]:
    """Every finding about them."""
    yield Check(OK, "identity", f"steps run as uid {os.geteuid()}, as the service does")
    if has_cgroup():
        yield Check(OK, "cgroup", "delegated: steps' processes are found and ended by their cgroups")
    else:
        what = "not delegated: steps' processes are found by their parents"
        yield Check(WARN, "cgroup", what, _DELEGATED)
    if config.job_container_type != "job_container/none":
        what = f"{config.job_container_type} needs root"
        yield Check(WARN, "containers", what, "unset job_container_type")
    if names := left_out(config):
        yield Check(WARN, "root's hooks", f"not called: {', '.join(names)}", "use the service of the machine for them")
