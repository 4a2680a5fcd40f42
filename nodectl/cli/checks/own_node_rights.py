"""The user's rights on a user's own node, and the missing rights of a service."""

import os
from collections.abc import Iterable, Iterator

from nodectl.cli.checks.check import FAIL, OK, WARN, Check
from nodectl.kernel import _namespace
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup.out_of_memory import memory_limit
from nodectl.launch.cgroup.tree import find_mount
from nodectl.launch.container import NAMESPACE, NONE, USER, job_dir, namespaces, own_namespaces, private_dirs, settings
from nodectl.model.config import Config
from nodectl.service.config_file.own_node import has_cgroup
from nodectl.spank.left_out import left_out

_FOUND = "steps' processes are found by their parents"
_OF_SLURM = "slurmstepd.scope/"  # below it Slurm has the cgroups of its jobs
_DELEGATED = "systemd-run --user --scope -p Delegate=yes nodectl --user daemon"


def all_checks(config: Config) -> Iterator[Check]:
    """Yield every finding about the rights."""
    yield Check(OK, "identity", f"steps run as uid {os.geteuid()}, as the service does")
    if has_cgroup():
        yield Check(OK, "cgroup", "delegated: steps' processes are found and ended by their cgroups")
    else:
        yield _not_delegated(cgroup_of())
    yield containers(config.job_container_type, _who_forbids_containers(config))
    if names := left_out(config):
        yield Check(WARN, "root's hooks", f"not called: {', '.join(names)}", "use the service of the machine for them")


def containers(wanted: str, why: str) -> Check:
    """Check the jobs' containers. `why`: the reason for failed namespaces, "" for success."""
    if wanted == NAMESPACE:
        return Check(FAIL, "containers", f"{wanted} needs root", f'job_container_type = "{USER}"')
    if wanted not in (NONE, USER):
        return Check(WARN, "containers", f"{wanted} was not tried", "run a step")
    if why:
        level, advice = (FAIL, f'until then job_container_type = "{NONE}"') if wanted == USER else (WARN, "")
        return Check(level, "containers", f"jobs cannot have a /tmp of their own: {why}", advice)
    if wanted == USER:
        return Check(OK, "containers", f"{wanted}: namespaces can be made")
    return Check(OK, "containers", f'job_container_type = "{USER}" would give each job a /tmp of its own')


def _who_forbids_containers(config: Config) -> str:
    """Return why a container's namespaces or mounts fail or the storage is untrusted, "" for success."""
    made: dict[str, int] = {}
    try:
        made = own_namespaces.make(os.geteuid(), os.getegid(), lambda: _mount(config.container_dirs))
    except OSError as error:
        return str(error.strerror)
    finally:
        namespaces.close(made)
    if config.job_container_type != USER:
        return ""
    base = settings.base_path(config)
    why = job_dir.distrusted(base)
    return why and f"container_base_path {base}: {why}"


def _mount(lines: Iterable[str]) -> None:
    places = [one.path for one in settings.read_dirs(lines)]
    mounts = [(place, _namespace.new_mount("tmpfs", [], _namespace.MOUNT_ATTR_NOSUID)) for place in places]
    private_dirs.mount(mounts, shared=False)


def _not_delegated(own: str) -> Check:
    """Report a cgroup without delegation; below Slurm's cgroups, advise no scope of systemd.

    Slurm would neither limit nor end the processes of such a scope.
    """
    if _OF_SLURM not in own:
        return Check(WARN, "cgroup", f"not delegated: {_FOUND}", _DELEGATED)
    limit = memory_limit(f"{find_mount()}{own}")
    bound = "" if limit is None else f" and its {limit >> 20} MiB of memory"
    return Check(WARN, "cgroup", f"not delegated: {_FOUND}; all share Slurm's {own}{bound}")
