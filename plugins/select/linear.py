"""select/linear: whole nodes."""

from __future__ import annotations

from bitarray import bitarray

from nodectl.plugin_api import SLURM_ERROR, SLURM_SUCCESS
from nodectl.selection.records import JobRecord, Output

plugin_type = "select/linear"
plugin_name = "whole nodes, as few runs of neighbours as possible"
plugin_version = (22, 5, 8)


def select_p_job_test(  # as the document has it
    job_ptr: JobRecord, bitmap: bitarray, min_nodes: int, max_nodes: int, req_nodes: int, mode: int,
    preemption_candidates: list[JobRecord] | None, preempted_jobs: Output, exc_core_bitmap: bitarray | None,
) -> int:  # fmt: skip
    """Chooses the first nodes."""
    del job_ptr, max_nodes, mode, preemption_candidates, preempted_jobs, exc_core_bitmap
    chosen = 0
    for node in list(bitmap.search(1)):
        bitmap[node] = chosen < max(req_nodes, min_nodes)
        chosen += 1
    return SLURM_SUCCESS if chosen >= min_nodes else SLURM_ERROR
