"""What select/cons_tres costs: job_test over 10,000 and 100,000 nodes, no two of which are used alike, so that nothing
is known of one from another; and what each `nodectl run` pays, on one node.

Each question is asked anew: what was found of nodes for the one before does not serve.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

from bench.rows import Row, in_turns
from nodectl.model.states import RUNNING
from nodectl.placement.machine.spec import from_spec
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of, load_plugin
from nodectl.selection.modes import SELECT_MODE_RUN_NOW
from nodectl.selection.records import JobDetails, JobRecord, JobResources, NodeRecord, NodeTable

FEW, MANY = 10_000, 100_000
_MEMORY = 256_000
_SPEC = "2s:16c:2t"
_CPUS, _TAKEN = 64, 12
_LITTLE = 50  # times as many rounds for what is quick


def selecting(rounds: int) -> list[Row]:
    """The rows of the table."""
    few, many, one = (_in_use(nodes) for nodes in (FEW, MANY, 1))
    taken = in_turns(
        rounds,
        few_none=_asking(few, tasks=1, cpus=_CPUS),
        many_none=_asking(many, tasks=1, cpus=_CPUS),
        few_half=_asking(few, tasks=FEW // 2, cpus=40),
        many_half=_asking(many, tasks=MANY // 2, cpus=40),
    )
    # By themselves: after a question about 100,000 nodes they would find the caches cold.
    taken |= in_turns(rounds * _LITTLE, one=_asking(one, tasks=1, cpus=1), begin=_beginning(one))
    rows = []
    for name, words in (("none", "1 job that fits nowhere"), ("half", "1 job of a task for every second node")):
        rows.append(Row(f"job_test, {FEW:,} nodes, {words}", taken[f"few_{name}"] * 1000, 0, "ms", 50))
        rows.append(Row(f"job_test, {MANY:,} nodes, {words}", taken[f"many_{name}"] * 1000, 0, "ms", 1000))
        times = MANY // FEW
        rows.append(
            Row(f"the same / {times} times the smaller", taken[f"many_{name}"], taken[f"few_{name}"] * times, "s", 2)
        )
    rows.append(Row("job_test of a task, one node", taken["one"] * 1000, 0, "ms", 0.1))
    rows.append(Row("job_begin and job_fini, one node", taken["begin"] * 1000, 0, "ms", 0.1))
    return rows


def _in_use(count_of_nodes: int) -> Selection:
    """A table on each node of which a job has some cores and some memory, but for a table of one."""
    machine = from_spec(_SPEC)
    table = NodeTable(NodeRecord(f"n{number}", machine, _MEMORY) for number in range(count_of_nodes))
    caller = caller_of(0)
    selection = Selection(load_plugin("select/cons_tres", caller=caller), table, caller)
    chance = random.Random(1)
    cores, cpus, memory = table.core_bitmap(), {}, {}
    for node in table if count_of_nodes > 1 else ():
        for core in chance.sample(range(node.cores), _TAKEN):
            cores[node.core_offset + core] = 1
        cpus[node.index], memory[node.index] = 2 * _TAKEN, chance.randrange(_MEMORY // 2)
    held = JobResources(table.bitmap(cpus), cores, cpus, memory)
    job = JobRecord(1, job_state=RUNNING, time_limit=9999, node_bitmap=held.node_bitmap, job_resrcs=held)
    selection.start("/nonexistent", [job] if cpus else [])
    return selection


def _asking(selection: Selection, tasks: int, cpus: int) -> Callable[[], object]:
    memory = count(1)

    def do() -> object:
        job = JobRecord(0, details=JobDetails(tasks, cpus, tasks * cpus, pn_min_memory=next(memory)))
        return selection.job_test(job, SELECT_MODE_RUN_NOW)

    return do


def _beginning(selection: Selection) -> Callable[[], object]:
    job = JobRecord(0)
    selection.job_test(job, SELECT_MODE_RUN_NOW)

    def do() -> None:
        selection.job_begin(job)
        selection.job_fini(job)
        selection.released(job)

    return do
