"""select/linear: whole nodes, of a row of nodes as few runs of neighbours as possible, the best fitting ones.

A job gets all CPUs of each of its nodes. With `over_subscribe` several jobs share the same nodes: `force:N`, or `yes:N`
for jobs that ask for it. Memory is counted where select_type_parameters has CR_Memory, devices always are.
"""

from __future__ import annotations

import errno

from bitarray import bitarray

from nodectl.placement.binding.no_layout import NoLayout
from nodectl.plugin_api import SLURM_ERROR, SLURM_SUCCESS, PluginError, set_errno
from nodectl.selection import state_file
from nodectl.selection.calls import idle
from nodectl.selection.information import *  # noqa: F403  # the functions about nodeinfo and jobinfo
from nodectl.selection.information import JobInfo, NodeInfo, told
from nodectl.selection.linear.choice import Chooser
from nodectl.selection.linear.machines import Machines
from nodectl.selection.linear.occupancy import JobHolding, Occupancy
from nodectl.selection.linear.runs import NodeWish, choose
from nodectl.selection.modes import (
    NODE_STATE_DOWN,
    SELECT_CONFIG_INFO,
    SELECT_CR_PLUGIN,
    SELECT_MODE_RUN_NOW,
    SELECT_MODE_TEST_ONLY,
)  # fmt: skip
from nodectl.selection.records import (
    JobRecord,
    NodeInfoMessage,
    NodeRecord,
    NodeTable,
    Output,
    ReservationRequest,
    StepRecord,
)  # fmt: skip
from nodectl.selection.slurmctld import now, parameters

plugin_type = "select/linear"
plugin_name = "whole nodes, the best fitting run of neighbours"
plugin_version = (22, 5, 8)

_STATE, _MAGIC, _VERSION = "select_linear", 0x4C494E45, 1


class _State:
    """The global variables of slurmctld's select/linear."""

    machines: Machines
    occupancy: Occupancy
    dims: list[int]


def init() -> int:
    """Start without nodes."""
    _State.machines, _State.occupancy, _State.dims = Machines(NodeTable(())), Occupancy(0), []
    return SLURM_SUCCESS


def fini() -> None:
    """Drop all nodes and jobs."""
    init()


def select_p_state_save(dir_name: str) -> int:
    """Write the state file, a magic number and a version: the jobs' records tell which job holds which nodes."""
    state_file.save(dir_name, _STATE, _MAGIC, _VERSION)
    return SLURM_SUCCESS


def select_p_state_restore(dir_name: str) -> int:
    """Check the state file, if there is a file."""
    state_file.check(dir_name, _STATE, _MAGIC, _VERSION)
    return SLURM_SUCCESS


def select_p_node_init(node_ptr: NodeTable, node_cnt: int) -> int:
    """Store the table of nodes, with all nodes idle."""
    if node_cnt != len(node_ptr):
        raise PluginError(errno.EINVAL, f"{node_cnt} nodes in a table of {len(node_ptr)}")
    _State.machines, _State.occupancy = Machines(node_ptr), Occupancy(node_cnt)
    return SLURM_SUCCESS


def select_p_job_init(job_list: list[JobRecord]) -> int:
    """Add the running jobs with the nodes of each job's job_resrcs."""
    for job in job_list:
        _add(job)
    return SLURM_SUCCESS


def select_p_reconfigure() -> int:
    """Do nothing: each call reads the configuration itself."""
    return SLURM_SUCCESS


def select_p_select_nodeinfo_set(job_ptr: JobRecord) -> int:
    """Update the NodeInfo of each node of the job."""
    share = _State.occupancy.jobs.get(job_ptr)
    for node in share.nodes if share else ():
        _set(_State.machines.nodes[node])
    return SLURM_SUCCESS


def select_p_select_nodeinfo_set_all() -> int:
    """Update the NodeInfo of every node."""
    for node in _State.machines.nodes:
        _set(node)
    return SLURM_SUCCESS


def select_p_update_node_config(index: int) -> int:
    """Read the table of nodes again after a node's hardware has changed."""
    if not 0 <= index < len(_State.machines.nodes):
        raise PluginError(errno.EINVAL, f"no node {index}")
    _State.machines = Machines(_State.machines.nodes)
    return SLURM_SUCCESS


def select_p_node_ranking(node_ptr: NodeTable, node_cnt: int) -> bool:
    """Return False: the order of the nodes does not change."""
    return False


@idle
def select_p_update_node_state(node_ptr: NodeRecord) -> int:
    """Do nothing: the host leaves unusable nodes out of the bitmap of select_p_job_test."""
    return SLURM_SUCCESS


def select_p_job_test(  # the document's parameters
    job_ptr: JobRecord, bitmap: bitarray, min_nodes: int, max_nodes: int, req_nodes: int, mode: int,
    preemption_candidates: list[JobRecord] | None, preempted_jobs: Output, exc_core_bitmap: bitarray | None,
) -> int:  # fmt: skip
    """Choose nodes; write bitmap, job_ptr.job_resrcs, job_ptr.start_time and preempted_jobs."""
    chooser = Chooser(_State.machines, parameters(), job_ptr)
    wish = (min_nodes, max_nodes, req_nodes)
    try:
        chooser.offer(bitmap, wish, exc_core_bitmap)
    except NoLayout as refused:
        raise PluginError(errno.EINVAL, str(refused)) from refused
    candidates = preemption_candidates or []
    if mode == SELECT_MODE_TEST_ONLY:
        found = chooser.ever()
    elif mode == SELECT_MODE_RUN_NOW:
        found = chooser.at_once(_State.occupancy, candidates)
    else:
        found = chooser.some_day(_State.occupancy, candidates, now())
    if found is None:
        return SLURM_ERROR
    bitmap[:] = found.nodes
    preempted_jobs.value = found.preempted
    job_ptr.start_time = found.start
    job_ptr.job_resrcs = chooser.resources(found)
    return SLURM_SUCCESS


def select_p_job_begin(job_ptr: JobRecord) -> int:
    """Mark the job's nodes as held by the job."""
    return SLURM_SUCCESS if _add(job_ptr) else SLURM_ERROR


def select_p_job_ready(job_ptr: JobRecord) -> int:
    """Return 1 if no node of the job is down."""
    nodes = _State.machines.nodes
    held = job_ptr.node_bitmap.search(bitarray("1")) if job_ptr.node_bitmap is not None else ()
    return int(all(nodes[index].node_state & 0xF != NODE_STATE_DOWN for index in held))


def select_p_job_fini(job_ptr: JobRecord) -> int:
    """Release the job's nodes; succeed also for a job without nodes."""
    _State.occupancy.remove(job_ptr)
    return SLURM_SUCCESS


@idle
def select_p_job_signal(job_ptr: JobRecord, signal: int) -> int:
    """Do nothing: the daemon sends signals."""
    return SLURM_SUCCESS


def select_p_job_mem_confirm(job_ptr: JobRecord) -> int:
    """Fail if a node of the job has less memory than the jobs there hold."""
    share = _State.occupancy.jobs.get(job_ptr)
    for node in share.nodes if share else ():
        have, used = _State.machines.memory(node), _State.occupancy.memory.get(node, 0)
        if used > have:
            name = _State.machines.nodes[node].name
            raise PluginError(errno.ENOMEM, f"jobs hold {used} MiB of node {name}, which has {have}")
    return SLURM_SUCCESS


def select_p_job_suspend(job_ptr: JobRecord, indf_susp: bool) -> int:
    """Release the job's CPUs; the job keeps memory and devices."""
    return SLURM_SUCCESS if _State.occupancy.stop(job_ptr, stopped=True) else SLURM_ERROR


def select_p_job_resume(job_ptr: JobRecord, indf_susp: bool) -> int:
    """Give the CPUs back to the job."""
    return SLURM_SUCCESS if _State.occupancy.stop(job_ptr, stopped=False) else SLURM_ERROR


def select_p_job_expand_allow() -> bool:
    """Return True: whole nodes can move between jobs."""
    return True


def select_p_job_expand(from_job_ptr: JobRecord, to_job_ptr: JobRecord) -> int:
    """Move all nodes of the first job to the second job; fail for jobs with devices."""
    jobs = _State.occupancy.jobs
    if from_job_ptr is to_job_ptr or from_job_ptr not in jobs or to_job_ptr not in jobs:
        return SLURM_ERROR
    mine, theirs = jobs[from_job_ptr], jobs[to_job_ptr]
    if mine.gres or theirs.gres:
        set_errno(errno.EOPNOTSUPP, "a job with devices cannot be expanded, nor expand another")
        return SLURM_ERROR
    memory = dict(theirs.memory)
    for node, held in mine.memory.items():
        memory[node] = memory.get(node, 0) + held
    _State.occupancy.remove(from_job_ptr)
    _State.occupancy.remove(to_job_ptr)
    nodes = sorted({*mine.nodes, *theirs.nodes})
    _State.occupancy.add(to_job_ptr, JobHolding(nodes, memory, {}, mine.alone and theirs.alone, theirs.stopped))
    return SLURM_SUCCESS


def select_p_job_resized(job_ptr: JobRecord, node_ptr: NodeRecord) -> int:
    """Remove a node from the job."""
    return SLURM_SUCCESS if _State.occupancy.remove_node(job_ptr, node_ptr.index) else SLURM_ERROR


@idle
def select_p_step_pick_nodes(job_ptr: JobRecord, step_jobinfo: JobInfo, node_count: int) -> None:
    """Return None: the host chooses the nodes of a step."""


@idle
def select_p_step_finish(step_ptr: StepRecord, killing_step: bool) -> int:
    """Do nothing: the plugin stores nothing about steps."""
    return SLURM_SUCCESS


def select_p_resv_test(
    resv_desc_ptr: ReservationRequest, node_cnt: int, avail_bitmap: bitarray, core_bitmap: Output
) -> bitarray | None:
    """Return whole nodes for a reservation, leaving out nodes of which a core is in `core_bitmap`."""
    if resv_desc_ptr.core_cnt:
        raise PluginError(errno.EOPNOTSUPP, "select/linear reserves whole nodes, and no cores")
    avail = avail_bitmap.copy()
    if core_bitmap.value is not None:
        _State.machines.without_cores_of(avail, core_bitmap.value)
    names = [name for name in resv_desc_ptr.node_list.split(",") if name]
    known = _State.machines.nodes.by_name
    required = _State.machines.nodes.bitmap(known[name].index for name in names if name in known)
    return choose(
        avail, _State.machines.amounts(), NodeWish(node_cnt, node_cnt, node_cnt, 0, required if names else None)
    )


def select_p_get_info_from_plugin(dinfo: int, job_ptr: JobRecord | None, data: Output) -> int:
    """Write the plugin's kind (0: no cores) or configuration into `data`."""
    if dinfo == SELECT_CR_PLUGIN:
        return told(data, 0)
    if dinfo == SELECT_CONFIG_INFO:
        return told(data, [("OverSubscribe", parameters().over_subscribe), ("Memory", str(parameters().tracks_memory))])
    return SLURM_ERROR


def select_p_ba_init(node_info_ptr: NodeInfoMessage, sanity_check: bool) -> None:
    """Note the number of nodes as the system's only dimension."""
    _State.dims = [node_info_ptr.record_count]


def select_p_ba_get_dims() -> list[int]:
    """Return the number of nodes as the only dimension."""
    return _State.dims


def _add(job: JobRecord) -> bool:
    """Add the job with the resources of job_resrcs to the occupancy; return False for a job without job_resrcs."""
    held = job.job_resrcs
    if held is None:
        return False
    alone = parameters().sharers(job) <= 1
    share = JobHolding(list(held.node_bitmap.search(bitarray("1"))), dict(held.memory), dict(held.gres), alone)
    _State.occupancy.add(job, share)
    return True


def _set(node: NodeRecord) -> None:
    info = node.select_nodeinfo
    if not isinstance(info, NodeInfo):
        return
    info.alloc_cpus = _State.machines.cpus(node.index) if _State.occupancy.running.of(node.index) else 0
    info.alloc_memory = _State.occupancy.memory.get(node.index, 0)
    info.weighted = float(info.alloc_cpus)
    info.tres = f"cpu={info.alloc_cpus},mem={info.alloc_memory}M" if info.alloc_cpus else ""
