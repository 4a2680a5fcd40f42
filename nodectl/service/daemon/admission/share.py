"""A job's share of this machine, and the transfer of the share to the job's first step.

The first step's file keeps the share: a later daemon and the job's further steps read it there. Used in the daemon's
event loop; no I/O.
"""

from typing import NamedTuple

from bitarray import bitarray

from nodectl.launch.cgroup import tree
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.selection import records
from nodectl.selection.records import JobRecord, JobResources, NodeTable
from nodectl.service.daemon.admission import job_variables
from nodectl.service.daemon.admission.binder import Binder

FIRST_STEP = {records.RUN: 0, records.ALLOC: EXTERN, records.BATCH: BATCH}
"""The number of a job's first step, by what the job is held by."""


class JobShare(NamedTuple):
    """A job's share of the machine.

    `mask` is a machine mask of CPUs, `cpus` how many of these are counted, `memory` MiB (0: no limit of its own),
    `devices` their keys (gpu:0).
    """

    mask: int
    cpus: int
    memory: int = 0
    devices: tuple[str, ...] = ()


def share_of(resources: JobResources, nodes: NodeTable) -> JobShare:
    """Return the job's share of the job's first node, this machine."""
    index = resources.node_bitmap.find(bitarray("1"))
    node = nodes[index]
    return JobShare(
        nodes.cpu_mask(node, resources.core_bitmap),
        resources.cpus.get(index, 0),
        resources.memory.get(index, 0),
        resources.gres.get(index, ()),
    )


def make_first(step: Step, job: JobRecord, share: JobShare, binder: Binder, base: str) -> None:
    """Make the step the first step of a job. `base`: the path below the cgroup2 mount where jobs live, "" without
    cgroups.
    """
    step.job_id = job.job_id
    step.step_id = step.first_step = FIRST_STEP[job.held_by]
    step.cgroup = tree.step_path(base, step.job_id, step.step_id) if base else ""
    step.restart = job.restart_cnt
    if job.array_task_id is not None:
        step.array_job, step.array_task = job.array_job_id, job.array_task_id
    step.time_limit = job.time_limit
    if job.held_by == records.RUN:
        step.name = job.name or step.name  # a select plugin may have changed it
    step.open_append |= job.details.open_append
    binder.give(step, share.mask)
    step.memory = share.memory or step.memory
    step.devices = list(share.devices)
    if step.step_id == BATCH:
        step.environment = {**step.environment, **job_variables.of_script(step, job)}
