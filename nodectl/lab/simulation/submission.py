"""Conversion of a workload's job to a job record, as by `nodectl submit`, and of a record to the job's shares. Pure."""

from __future__ import annotations

from bitarray import bitarray

from nodectl.lab.simulation.generator import Machine
from nodectl.lab.simulation.story import Share
from nodectl.lab.simulation.workload import WorkJob
from nodectl.model.device_part import MEMORY, SHARD
from nodectl.scheduler import job_array
from nodectl.selection.records import BATCH, JobDetails, JobRecord, NodeTable

BEGINNING = 1_000_000_000.0
"""When simulated time begins, in seconds since the epoch: a 0 would mean "none"."""
_ONE = bitarray("1")


def record_of(job: WorkJob, now: float) -> JobRecord:
    """Return the record of a job submitted now."""
    layout = {"ntasks": str(job.tasks), "cpus_per_task": str(job.cpus_per_task)}
    if job.nodes:
        layout["nodes"] = str(job.nodes)
    if job.gres:
        layout["gres"] = ",".join(f"{name}:{count}" for name, count in job.gres)
    return JobRecord(
        job_id=job.number,
        user_id=job.uid,
        group_id=job.uid,
        user_name=job.user,
        name=job.name or f"job{job.number}",
        qos=job.qos,
        held_by=BATCH,
        direct_priority=job.priority,
        nice=job.nice,
        time_limit=job.limit,
        submit_time=now,
        array_job_id=job.number if job.array else 0,
        array_tasks=job.array,
        array_limit=job.array_limit,
        details=JobDetails(
            num_tasks=job.tasks,
            cpus_per_task=job.cpus_per_task,
            min_cpus=job.cpus,
            min_nodes=max(1, job.nodes),
            max_nodes=job.nodes,
            pn_min_memory=job.memory,
            mem_per_cpu=job.mem_per_cpu,
            contiguous=job.contiguous,
            share_res=False if job.exclusive else True if job.oversubscribe else None,
            gres=dict(job.gres),
            layout=layout,
            begin_time=BEGINNING + job.begin if job.begin else 0.0,
            deadline=BEGINNING + job.deadline if job.deadline else 0.0,
            dependency=job.dependency,
            requeue=job.requeue,
        ),
    )


def machine_of(nodes: NodeTable) -> Machine:
    """Return the machine for a generated workload: the minimum over the nodes. Every node can then run the jobs."""
    devices: dict[str, int] = {}
    for device in nodes[0].devices:
        devices[device.name] = devices.get(device.name, 0) + 1
    for node in nodes:
        have = [device.name for device in node.devices]
        devices = {name: min(count, have.count(name)) for name, count in devices.items()}
    for name, part in ((SHARD, "shards"), (MEMORY, "memory")):
        devices[name] = min(max((getattr(one, part) for one in node.devices), default=0) for node in nodes)
    return Machine(
        sum(node.cpus for node in nodes),
        min(node.cpus for node in nodes),
        min(max(0, node.real_memory - node.mem_spec_limit) for node in nodes),
        tuple((name, count) for name, count in devices.items() if count),
    )


def number_of_tasks(text: str) -> int:
    """Return the number of tasks of "0-9:2,15"; 1 for a text refused later by the queue."""
    try:
        return job_array.size(job_array.tasks_of(text))
    except ValueError:
        return 1


def shares_of(job: JobRecord, nodes: NodeTable) -> dict[int, Share]:
    """Return a job's shares, by number of the node."""
    held = job.job_resrcs
    if held is None:
        return {}
    shares = {}
    for index in held.node_bitmap.search(_ONE):
        node = nodes[index]
        bits = held.core_bitmap[node.core_offset : node.core_offset + node.cores]
        shares[index] = Share(
            tuple(bits.search(_ONE)), held.cpus.get(index, 0), held.memory.get(index, 0), held.gres.get(index, ())
        )
    return shares
