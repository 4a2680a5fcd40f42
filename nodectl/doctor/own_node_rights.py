"""What a node of a user's own has of its user's rights, and what of a service's it lacks."""

import os
from collections.abc import Iterator

from nodectl.cgroup.tree import find_mount
from nodectl.config import Config
from nodectl.config_file.own_node import has_cgroup
from nodectl.doctor.check import OK, WARN, Check
from nodectl.spank.left_out import left_out
from nodectl.stepd.accounting import memory_limit
from nodectl.tracing.recorder import cgroup_of

_FOUND = "steps' processes are found by their parents"
_OF_SLURM = "slurmstepd.scope/"  # below it Slurm has the cgroups of its jobs
_DELEGATED = "systemd-run --user --scope -p Delegate=yes nodectl --user daemon"


def all_checks(config: Config) -> Iterator[Check]:
    """Every finding about them."""
    yield Check(OK, "identity", f"steps run as uid {os.geteuid()}, as the service does")
    if has_cgroup():
        yield Check(OK, "cgroup", "delegated: steps' processes are found and ended by their cgroups")
    else:
        yield _not_delegated(cgroup_of())
    if config.job_container_type != "job_container/none":
        what = f"{config.job_container_type} needs root"
        yield Check(WARN, "containers", what, "unset job_container_type")
    if names := left_out(config):
        yield Check(WARN, "root's hooks", f"not called: {', '.join(names)}", "use the service of the machine for them")


def _not_delegated(own: str) -> Check:
    """A scope of systemd's would not be among what Slurm limits and ends, and so is no advice there."""
    if _OF_SLURM not in own:
        return Check(WARN, "cgroup", f"not delegated: {_FOUND}", _DELEGATED)
    limit = memory_limit(f"{find_mount()}{own}")
    bound = "" if limit is None else f" and its {limit >> 20} MiB of memory"
    return Check(WARN, "cgroup", f"not delegated: {_FOUND}; all share Slurm's {own}{bound}")
