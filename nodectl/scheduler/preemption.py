"""Preemption: which jobs make room for which job, and how. Pure functions, in the daemon and in planning commands.

As in Slurm, the job that makes room decides the way: its quality of service's, or else the key `preempt_mode`.
"""

from __future__ import annotations

from collections.abc import Iterable

from nodectl.model.device_part import clash
from nodectl.model.states import RUNNING
from nodectl.scheduler.decisions import CANCEL, REQUEUE, SUSPEND
from nodectl.scheduler.policy import Policy
from nodectl.selection.answers import Choice
from nodectl.selection.ledger import Ledger
from nodectl.selection.records import BATCH, JobRecord

OFF = "off"


def may_preempt(policy: Policy, job: JobRecord) -> bool:
    """True where jobs of another quality of service make room for this job."""
    qos = policy.qos.get(job.qos)
    return qos is not None and bool(qos.preempt)


def way(policy: Policy, job: JobRecord) -> str:
    """Return how the job makes room. A job not to be requeued is cancelled."""
    qos = policy.qos.get(job.qos)
    how = (qos.preempt_mode if qos is not None else "") or policy.preempt_mode
    if how == REQUEUE and not (job.held_by == BATCH and job.details.requeue):
        return CANCEL
    return how


def candidates(policy: Policy, job: JobRecord, active: Iterable[JobRecord]) -> list[JobRecord]:
    """Return the running jobs for preemption by this job: the least urgent first, of equal jobs the youngest."""
    qos = policy.qos.get(job.qos)
    preempted = qos.preempt if qos is not None else ()
    found = [
        one for one in active
        if one.job_state == RUNNING and one.qos in preempted and way(policy, one) != OFF
    ]  # fmt: skip
    return sorted(found, key=lambda one: (policy.qos[one.qos].priority, -one.start_time, -one.job_id))


def fits_beside_suspended(policy: Policy, ledger: Ledger, choice: Choice, user: int) -> bool:
    """True where there is room beside the memory and devices kept by suspended jobs. `user`: the new job's uid."""
    gone = [job for job in choice.preempted if way(policy, job) != SUSPEND]
    for node, wanted in choice.resources.memory.items():
        if wanted > ledger.memory_free(node) + memory(gone, node):
            return False
    for node, keys in choice.resources.gres.items():
        if clash(ledger.nodes[node].devices, ledger.loads(node, gone), keys, user):
            return False
    return True


def memory(jobs: Iterable[JobRecord], node: int) -> int:
    """Return the MiB held by the jobs on a node."""
    return sum(job.job_resrcs.memory.get(node, 0) for job in jobs if job.job_resrcs is not None)
