"""task/affinity: binds each task to CPUs with sched_setaffinity(2).

Where: the masks are computed in the daemon, before any process exists (`task_p_slurmd_launch_request`), so that a bad
map or mask is refused with the allowed mask in the message. They are applied in the task, as root, once it is in its
cgroup (`task_p_pre_launch_priv`), because moving a process resets its affinity; and read back.
Options: --cpu-bind of `nodectl run`.
"""

import errno
import functools
import os

from nodectl import cpu_bind, messages
from nodectl.cpu_list import cpus_of, format_cpulist, mask_of
from nodectl.plugin_api import PluginError
from nodectl.step import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.topology import Topology

plugin_type = "task/affinity"
plugin_name = "task affinity by sched_setaffinity"
plugin_version = (22, 5, 8)


@functools.cache
def _machine() -> "Topology":
    """The hardware, read at the first launch: CPUs that come online later count from the daemon's next start."""
    # Only the daemon computes: the forkserver, which loads this file too, is spared what these import.
    from nodectl import topology

    return topology.read(allowed=os.sched_getaffinity(0))


@functools.lru_cache(maxsize=256)
def _place(text: str, allocation: int, ntasks: int, cpus_per_task: int) -> tuple[tuple[int, ...], dict[str, str]]:
    """Masks and variables of a request; the same question is asked a thousand times where steps are short."""
    from nodectl import placement

    try:
        bind = cpu_bind.parse(text) if text else cpu_bind.CpuBind()
        placed = placement.bind(_machine(), allocation, placement.Request(ntasks, cpus_per_task, bind))
    except (cpu_bind.BadCpuBind, placement.NoFit) as error:
        raise PluginError(errno.EINVAL, str(error)) from error
    return placed.masks, cpu_bind.environment(bind, placed.masks, width=_machine().width)


def task_p_slurmd_launch_request(req: Step, node_id: int) -> int:
    """Daemon, root: fills in `req.cpu_masks` and SLURM_CPU_BIND*; refuses what the machine cannot give."""
    del node_id
    masks, variables = _place(req.cpu_bind, req.allocation, req.ntasks, req.cpus_per_task)
    req.cpu_masks = list(masks)
    req.environment.update(variables)
    return 0


def task_p_pre_launch_priv(step: Step) -> int:
    """Task, root, in its cgroup: binds itself and checks that it took."""
    task = step.task
    assert task is not None  # noqa: S101  # called in a task
    wanted = cpus_of(task.mask)
    if wanted:
        try:
            os.sched_setaffinity(0, wanted)
        except OSError as error:
            raise PluginError(
                error.errno or errno.EINVAL, f"bind to CPUs {format_cpulist(wanted)}: {error.strerror}"
            ) from error
    got = mask_of(os.sched_getaffinity(0))
    if step.cpu_bind:
        _report(step, task.local_id, task.mask, got)
    if wanted and got != task.mask:
        cpus = format_cpulist(cpus_of(got))
        raise PluginError(errno.EINVAL, f"bound to CPUs {cpus} instead of {format_cpulist(wanted)}")
    return 0


def _report(step: Step, rank: int, wanted: int, got: int) -> None:
    bind = cpu_bind.parse(step.cpu_bind)
    if bind.verbose:
        line = cpu_bind.report_line(
            bind,
            node=step.node_name,
            task=rank,
            local=rank,
            pid=os.getpid(),
            mask=wanted,
            inherited=got,
            failed=bool(wanted) and got != wanted,
        )
        messages.say(messages.PLAIN, line)
