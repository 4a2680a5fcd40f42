"""task/affinity: binds each task to CPUs with sched_setaffinity(2), and its memory to NUMA nodes with set_mempolicy(2).

Where: the layout is computed in the daemon, before any process exists (`task_p_slurmd_launch_request`), so that a bad
map or mask is refused with the allowed mask in the message. CPUs are bound in the task, as root, once it is in its
cgroup (`task_p_pre_launch_priv`), because moving a process resets its affinity; memory as the user, right before the
program (`task_p_pre_launch`). Both are read back.
Options: srun's of layout and binding, --mem-bind and --gpu-bind among them.
"""

import errno
import os

from nodectl import messages
from nodectl.binding import report
from nodectl.binding.refused import Refused
from nodectl.kernel import _kernel
from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of
from nodectl.model.step import Step, Task
from nodectl.plugin_api import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

plugin_type = "task/affinity"
plugin_name = "task affinity by sched_setaffinity"
plugin_version = (22, 5, 8)

_PREFERRED = 1  # MPOL_PREFERRED of set_mempolicy(2)


def task_p_slurmd_launch_request(req: Step, node_id: int) -> int:
    """Daemon, root: fills in the step's CPUs, memory and devices; refuses what the machine cannot give."""
    del node_id
    assert req.binder is not None  # noqa: S101  # called in the daemon
    try:
        req.binder.bind(req)
    except Refused as error:
        raise PluginError(errno.EINVAL, error.reason) from error
    return 0


def task_p_slurmd_batch_request(req: Step) -> int:
    """Daemon, root: fills in the CPUs and devices of the step that runs a job's script: all that the job has."""
    return task_p_slurmd_launch_request(req, 0)


def task_p_pre_launch_priv(step: Step) -> int:
    """Task, root, in its cgroup: binds itself and checks that it took."""
    task = _task(step)
    wanted = cpus_of(task.mask)
    if wanted:
        try:
            os.sched_setaffinity(0, wanted)
        except OSError as error:
            raise PluginError(
                error.errno or errno.EINVAL, f"bind to CPUs {format_cpulist(wanted)}: {error.strerror}"
            ) from error
    got = mask_of(os.sched_getaffinity(0))
    if _verbose(step.environment, "SLURM_CPU_BIND"):
        kind = step.environment.get("SLURM_CPU_BIND_TYPE", "")
        messages.say(messages.PLAIN, report.cpu_line(kind, _who(step, task), mask=task.mask, got=got))
    if wanted and got != task.mask:
        cpus = format_cpulist(cpus_of(got))
        raise PluginError(errno.EINVAL, f"bound to CPUs {cpus} instead of {format_cpulist(wanted)}")
    return 0


def task_p_pre_launch(step: Step) -> int:
    """Task, user: sets its memory policy, which the program keeps."""
    task = _task(step)
    policy = step.mem_policies[task.local_id] if step.mem_policies else None
    if policy is None:
        return 0
    mode, nodes = policy
    try:
        _kernel.set_mempolicy(mode, nodes)
    except OSError as error:
        raise PluginError(
            error.errno or errno.EINVAL, f"bind memory to NUMA nodes {format_cpulist(nodes)}: {error.strerror}"
        ) from error
    got = _kernel.get_mempolicy()
    if got != (mode, sorted(nodes)):
        raise PluginError(errno.EINVAL, f"memory bound to {got} instead of {(mode, nodes)}")
    if _verbose(step.environment, "SLURM_MEM_BIND"):
        kind = step.environment.get("SLURM_MEM_BIND_TYPE", "")
        line = report.memory_line(kind, _who(step, task), prefer=mode == _PREFERRED, mask=mask_of(nodes))
        os.write(2, line.encode() + b"\n")
    return 0


def _task(step: Step) -> Task:
    assert step.task is not None  # noqa: S101  # called in a task
    return step.task


def _verbose(environment: "Mapping[str, str]", name: str) -> bool:
    return environment.get(name, "").partition(",")[0] == "verbose"


def _who(step: Step, task: Task) -> str:
    return report.subject(step.node_name, task.global_id, task.local_id, os.getpid())
