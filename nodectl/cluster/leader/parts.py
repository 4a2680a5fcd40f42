"""A layout over several nodes, split into parts: each node receives the part of the step to run there.

A part is the member `part` of a launch request of org.nodectl; `daemon/admission/part.py` reads it. The values common
to all nodes stand apart, so that a step on thousands of nodes holds them once: `part_of` puts both together again. Pure
functions of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.placement.binding import spread
from nodectl.placement.binding.hostlist import compressed
from nodectl.placement.binding.layout import Layout, NodeShare, TaskPlace

Part = dict[str, object]
_OF_A_NODE = ("SLURM_CPUS_ON_NODE", "SLURM_GTIDS", "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE")
"""What a layout tells of task 0's node; each node tells its own."""


def parts_of(
    layout: Layout,
    names: Sequence[str],
    number: tuple[int, int],
    *,
    job_cpus: Mapping[str, int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Part, dict[int, Part]]:
    """Return the values common to all nodes of a step, and by index of the machine the values of each node.

    `names`: of the machines; `number`: of job and step. `job_cpus`: the number of the job's CPUs on each of its nodes,
    in the job's order; without it, the tasks learn about their job from the variables sent by the client.
    `environment`: further variables of the whole step.
    """
    nodes = [names[share.node] for share in layout.nodes]
    variables = {name: value for name, value in layout.environment.items() if name not in _OF_A_NODE}
    whole: Part = {
        "job": number[0],
        "step": number[1],
        "nodes": compressed(nodes, in_order=True),
        "nnodes": len(nodes),
        "ntasks": len(layout.tasks),
        "tasks_per_node": spread.tasks_per_node([share.ntasks for share in layout.nodes]),
        "environment": {**variables, **of_job(job_cpus or {}), **(environment or {})},
    }
    places: dict[int, list[TaskPlace]] = {share.node: [] for share in layout.nodes}
    for place in layout.tasks:  # in the order of their numbers, and so are those of each node
        places[place.node].append(place)
    return whole, {
        share.node: _own(share, nodeid, nodes[nodeid], places[share.node]) for nodeid, share in enumerate(layout.nodes)
    }


def of_job(cpus: Mapping[str, int]) -> dict[str, str]:
    """Return the variables about the nodes of a job, `cpus` being the job's CPUs on each node; none without nodes."""
    if not cpus:
        return {}
    nodes = compressed(list(cpus), in_order=True)
    return {
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(len(cpus)),
        "SLURM_JOB_CPUS_PER_NODE": spread.tasks_per_node(list(cpus.values())),  # the same notation
    }


def _own(share: NodeShare, nodeid: int, name: str, places: Sequence[TaskPlace]) -> Part:
    own: Part = {
        "node": name,
        "nodeid": nodeid,
        "tasks": format_cpulist(place.task for place in places),
        "cpus": f"{share.cpus:x}",
        "masks": [f"{place.mask:x}" for place in places],
        "mems": format_cpulist(cpus_of(share.mems)),
        "bind": [share.bind_type, share.bind_list],
    }
    if any(place.policy for place in places):
        policies = [place.policy for place in places]
        own["mem_policies"] = [
            [] if one is None else [one.mode, format_cpulist(cpus_of(one.nodes))] for one in policies
        ]
    return own
