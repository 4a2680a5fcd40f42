"""The ledger, where a job holds no memory of a node."""

from __future__ import annotations

from nodectl.lab.simulation.described import nodes_of
from nodectl.selection.ledger import Ledger
from nodectl.selection.records import JobRecord, JobResources
from nodectl.selection.slurmctld import Parameters


def test_a_job_without_memory_ends_after_one_with_memory() -> None:
    nodes = nodes_of("4c,mem=100")
    ledger = Ledger(nodes, Parameters())
    jobs = [JobRecord(number) for number in (1, 2)]
    for job, memory in zip(jobs, (0, 50), strict=True):
        cores = nodes.core_bitmap({0: 1 << job.job_id})
        job.job_resrcs = JobResources(nodes.bitmap([0]), cores, {0: 1}, {0: memory})
        ledger.take(job)
    for job in reversed(jobs):
        ledger.give(job)
    assert ledger.is_empty()
    assert ledger.memory_used(0) == 0
