"""task/affinity: binds each task to CPUs with sched_setaffinity(2), and its memory to NUMA nodes with set_mempolicy(2).

Where: the daemon computes the layout before any process exists (`task_p_slurmd_launch_request`), so that it refuses a
bad map or mask with the allowed mask in the message. CPUs are bound in the task, as root, once it is in its cgroup (in
the place of `task_p_pre_launch_priv`), because moving a process resets its affinity; memory as the user, right before
the program (`task_p_pre_launch`). Both are expressed as operations, which need no call in the task, and read back.
Options: srun's of layout and binding, --mem-bind and --gpu-bind among them.
"""

import errno

from nodectl.kernel import operations
from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of
from nodectl.model.step import Step, Task
from nodectl.placement.binding import report
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.plugin_api import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.kernel.operations import Operation

plugin_type = "task/affinity"
plugin_name = "task affinity by sched_setaffinity"
plugin_version = (22, 5, 8)

_PREFERRED = 1  # MPOL_PREFERRED of set_mempolicy(2)
_PID = "[-1]"  # a placeholder for a task's pid
_ANY = 1 << 62  # a placeholder for a mask that only the task knows


def task_p_slurmd_launch_request(req: Step, node_id: int) -> int:
    """Choose the step's CPUs, memory and devices; refuse a request beyond the machine's means. Daemon, root."""
    assert req.binder is not None  # noqa: S101  # called in the daemon
    try:
        req.binder.bind(req)
    except NoLayout as error:
        raise PluginError(errno.EINVAL, error.reason) from error
    return 0


def task_p_slurmd_batch_request(req: Step) -> int:
    """Give the step of a job's script all CPUs and devices of the job. Daemon, root."""
    return task_p_slurmd_launch_request(req, 0)


def task_p_pre_launch_priv_plan(step: Step, task: Task) -> "list[Operation]":
    """Return the operations to bind the task to CPUs and to verify the binding. Stepd, root.

    The task does them as root, in its cgroup.
    """
    cpus = cpus_of(task.mask)
    if not _verbose(step.environment, "SLURM_CPU_BIND"):
        return [operations.bind(cpus, format_cpulist(cpus))] if cpus else []
    kind = step.environment.get("SLURM_CPU_BIND_TYPE", "")
    line = report.cpu_line(kind, _who(step, task), mask=task.mask, got=task.mask or _ANY)
    before, between, behind = _parts(line, f"{task.mask or _ANY:#x}")
    return [operations.bind(cpus, format_cpulist(cpus), (before, f"{between}0x", behind))]


def task_p_pre_launch_plan(step: Step, task: Task) -> "list[Operation]":
    """Return the operations to set the task's memory policy. Stepd, root.

    The task does them as the user; its program keeps the policy.
    """
    policy = step.mem_policies[task.local_id] if step.mem_policies else None
    if policy is None:
        return []
    mode, nodes = policy
    wanted = [operations.memory_policy(mode, nodes, format_cpulist(nodes))]
    if _verbose(step.environment, "SLURM_MEM_BIND"):
        kind = step.environment.get("SLURM_MEM_BIND_TYPE", "")
        line = report.memory_line(kind, _who(step, task), prefer=mode == _PREFERRED, mask=mask_of(nodes))
        before, _, behind = line.partition(_PID)
        wanted.append(operations.say(f"{before}[", f"]{behind}\n"))
    return wanted


def _who(step: Step, task: Task) -> str:
    """Return the task's name for reports, with a placeholder for the still unknown pid."""
    return report.subject(step.node_name, task.global_id, task.local_id, -1)


def _parts(line: str, mask: str) -> tuple[str, str, str]:
    """Return the parts of a line before the pid, between pid and mask, and after the mask."""
    before, _, rest = line.partition(_PID)
    between, _, behind = rest.partition(mask)
    return f"{before}[", f"]{between}", behind


def _verbose(environment: "Mapping[str, str]", name: str) -> bool:
    return environment.get(name, "").partition(",")[0] == "verbose"
