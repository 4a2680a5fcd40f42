"""select/cons_tres: CPUs, cores or sockets of nodes, their memory and their devices, as SelectTypeParameters says.

The rules are those of Slurm's plugin of this name, as measured; `nodectl.selection.tres` implements them. The resources
in use follow from the jobs' records, so the state file holds only its magic number and version.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from bitarray import bitarray

from nodectl.placement.binding.no_layout import NoLayout
from nodectl.plugin_api import SLURM_ERROR, SLURM_SUCCESS, PluginError, set_errno
from nodectl.selection import resources, slurmctld, state_file
from nodectl.selection.calls import idle
from nodectl.selection.information import *  # noqa: F403  # the functions about nodeinfo and jobinfo
from nodectl.selection.information import JobInfo, told
from nodectl.selection.modes import (
    SELECT_CONFIG_INFO,
    SELECT_CR_PLUGIN,
    SELECT_MODE_TEST_ONLY,
    SELECT_MODE_WILL_RUN,
)  # fmt: skip
from nodectl.selection.records import (
    JobRecord,
    NodeInfoMessage,
    NodeRecord,
    Output,
    ReservationRequest,
    StepRecord,
)  # fmt: skip
from nodectl.selection.tres import information, reservations
from nodectl.selection.tres.question import Question
from nodectl.selection.tres.search import Placement
from nodectl.selection.tres.state import State
from nodectl.selection.tres.wish import Wishes

plugin_type = "select/cons_tres"
plugin_name = "cores, memory and devices of nodes that jobs share"
plugin_version = (22, 5, 8)

_FILE, _MAGIC, _VERSION = "select_cons_tres", 0x7E550FC5, 1
_CONS_TRES = 2  # the answer of select/cons_tres to SELECT_CR_PLUGIN
ESLURM_NODES_BUSY, ESLURM_NOT_SUPPORTED, ESLURM_NEVER = 2016, 2018, 2014


class _Plugin:
    parameters = slurmctld.Parameters()
    state: State


def select_p_state_save(dir_name: str) -> int:
    """Write the plugin's state file, which holds only a magic number and a version."""
    state_file.save(dir_name, _FILE, _MAGIC, _VERSION)
    return SLURM_SUCCESS


def select_p_state_restore(dir_name: str) -> int:
    """Check the magic number and the version in the state file."""
    state_file.check(dir_name, _FILE, _MAGIC, _VERSION)
    return SLURM_SUCCESS


def select_p_node_init(node_ptr: Sequence[NodeRecord], node_cnt: int) -> int:
    """Read the table of nodes and start with every node idle."""
    _Plugin.parameters = slurmctld.parameters()
    _Plugin.state = State(node_ptr, Wishes(_Plugin.parameters))  # type: ignore[arg-type]  # the host's is a NodeTable
    return SLURM_SUCCESS


def select_p_job_init(job_list: Sequence[JobRecord]) -> int:
    """Mark the resources in the jobs' records as held."""
    _Plugin.state.restore(job_list)
    return SLURM_SUCCESS


def select_p_reconfigure() -> int:
    """Read the configuration again; the resources of running jobs do not change."""
    _Plugin.parameters = slurmctld.parameters()
    _Plugin.state.wishes = Wishes(_Plugin.parameters)
    return SLURM_SUCCESS


def select_p_select_nodeinfo_set(job_ptr: JobRecord) -> int:
    """Update the NodeInfo of each node of the job."""
    for node in job_ptr.node_bitmap.search(1) if job_ptr.node_bitmap is not None else ():
        information.note(_Plugin.state, node)
    return SLURM_SUCCESS


def select_p_select_nodeinfo_set_all() -> int:
    """Update the NodeInfo of each changed node."""
    changed = _Plugin.state.changed
    while changed:
        information.note(_Plugin.state, changed.pop())
    return SLURM_SUCCESS


def select_p_update_node_config(index: int) -> int:
    """Read the node's configuration again after a change."""
    _Plugin.state.renew(_Plugin.state.table[index])
    return SLURM_SUCCESS


def select_p_node_ranking(node_ptr: Sequence[NodeRecord], node_cnt: int) -> bool:
    """Return False: there is no network between nodes, so nodes have no ranks."""
    return False


@idle
def select_p_update_node_state(node_ptr: NodeRecord) -> int:
    """Do nothing: the host passes the usable nodes in each call of select_p_job_test."""
    return SLURM_SUCCESS


def select_p_job_test(  # the document's parameters
    job_ptr: JobRecord, bitmap: bitarray, min_nodes: int, max_nodes: int, req_nodes: int, mode: int,
    preemption_candidates: list[JobRecord] | None, preempted_jobs: Output | None, exc_core_bitmap: bitarray | None,
) -> int:  # fmt: skip
    """Choose nodes from `bitmap` and put the chosen cores, memory and devices into job_ptr.job_resrcs."""
    state, details = _Plugin.state, job_ptr.details
    required = details.req_node_bitmap
    try:
        goal = state.wishes.goal(
            job_ptr, min_nodes, max_nodes, req_nodes, [] if required is None else list(required.search(1))
        )
    except NoLayout as refused:
        raise PluginError(errno.EINVAL, refused.reason) from refused
    question = Question(state, goal, bitmap, exc_core_bitmap)
    if mode == SELECT_MODE_TEST_ONLY:
        return _chosen(job_ptr, bitmap, question.ever(), ESLURM_NEVER)
    now, gone = slurmctld.now(), []
    start = now
    placement = question.now()
    if placement is None and preemption_candidates:
        found = question.preempting(preemption_candidates)
        if found is not None:
            placement, gone = found[0], [held.job for held in found[1]]
    if placement is None and mode == SELECT_MODE_WILL_RUN:
        later = question.later(now)
        if later is not None:
            placement, start = later
    if placement is not None:
        if preempted_jobs is not None:
            preempted_jobs.value = gone
        if mode == SELECT_MODE_WILL_RUN:
            job_ptr.start_time = start
    return _chosen(job_ptr, bitmap, placement, ESLURM_NODES_BUSY)


def _chosen(job: JobRecord, bitmap: bitarray, placement: Placement | None, refusal: int) -> int:
    if placement is None:
        set_errno(refusal, _WORDS[refusal])
        return SLURM_ERROR
    job.job_resrcs = placement.resources(_Plugin.state.table)
    bitmap.setall(0)
    bitmap |= job.job_resrcs.node_bitmap
    return SLURM_SUCCESS


_WORDS = {
    ESLURM_NEVER: "Requested node configuration is not available",
    ESLURM_NODES_BUSY: "Requested nodes are busy",
}


def select_p_job_begin(job_ptr: JobRecord) -> int:
    """Mark the resources chosen by select_p_job_test as held by the job."""
    taken = _Plugin.state.begin(job_ptr)
    if taken:
        set_errno(ESLURM_NODES_BUSY, taken)
        return SLURM_ERROR
    return SLURM_SUCCESS


@idle
def select_p_job_ready(job_ptr: JobRecord) -> int:
    """Return 1: nodes need no preparation."""
    return 1


def select_p_job_fini(job_ptr: JobRecord) -> int:
    """Release the resources of the job. A job without resources is accepted, because calls may be replayed."""
    _Plugin.state.finish(job_ptr)
    return SLURM_SUCCESS


@idle
def select_p_job_signal(job_ptr: JobRecord, signal: int) -> int:
    """Do nothing: the daemon signals the steps."""
    return SLURM_SUCCESS


def select_p_job_mem_confirm(job_ptr: JobRecord) -> int:
    """Fail if a node of the job now has less memory than the jobs there hold."""
    state = _Plugin.state
    held = state.held.get(job_ptr.job_id)
    for node in () if held is None else held.shares:
        use = state.uses[node]
        if use.memory > use.shape.memory:
            name = state.table[node].name
            set_errno(errno.ENOMEM, f"node {name} has {use.shape.memory} MiB, its jobs hold {use.memory}")
            return SLURM_ERROR
    return SLURM_SUCCESS


def select_p_job_suspend(job_ptr: JobRecord, indf_susp: bool) -> int:
    """Release the cores of an indefinitely suspended job; the job keeps memory and devices."""
    return SLURM_SUCCESS if not indf_susp or _Plugin.state.suspend(job_ptr) else SLURM_ERROR


def select_p_job_resume(job_ptr: JobRecord, indf_susp: bool) -> int:
    """Take the job's cores again; fail while another job holds a core."""
    taken = _Plugin.state.resume(job_ptr) if indf_susp else ""
    if taken:
        set_errno(ESLURM_NODES_BUSY, taken)
        return SLURM_ERROR
    return SLURM_SUCCESS


def select_p_job_expand_allow() -> bool:
    """Return True: a job can be expanded."""
    return True


def select_p_job_expand(from_job_ptr: JobRecord, to_job_ptr: JobRecord) -> int:
    """Move all resources of the first job to the second job."""
    state, source, target = _Plugin.state, from_job_ptr, to_job_ptr
    mine, theirs = source.job_resrcs, target.job_resrcs
    if source is target or mine is None or theirs is None or not {source.job_id, target.job_id} <= state.held.keys():
        set_errno(errno.EINVAL, "two jobs that hold something are needed")
        return SLURM_ERROR
    if mine.gres or theirs.gres:
        set_errno(ESLURM_NOT_SUPPORTED, "jobs with devices cannot be expanded, nor expand others")
        return SLURM_ERROR
    state.finish(source)
    state.finish(target)
    target.job_resrcs = resources.merged(theirs, mine)
    target.node_bitmap = target.job_resrcs.node_bitmap.copy()
    source.job_resrcs = source.node_bitmap = None
    state.hold(target)
    return SLURM_SUCCESS


def select_p_job_resized(job_ptr: JobRecord, node_ptr: NodeRecord) -> int:
    """Remove a node from the job; fail for the job's last node."""
    held = job_ptr.job_resrcs
    if held is None or not _Plugin.state.shrink(job_ptr, node_ptr.index):
        set_errno(errno.EINVAL, f"job {job_ptr.job_id} cannot give up node {node_ptr.name}")
        return SLURM_ERROR
    job_ptr.job_resrcs = resources.without(held, node_ptr.index, _Plugin.state.table)
    job_ptr.node_bitmap = job_ptr.job_resrcs.node_bitmap.copy()
    return SLURM_SUCCESS


@idle
def select_p_step_pick_nodes(job_ptr: JobRecord, step_jobinfo: JobInfo, node_count: int) -> bitarray | None:
    """Return None: the host chooses the nodes of a step."""
    return None


@idle
def select_p_step_finish(step_ptr: StepRecord, killing_step: bool) -> int:
    """Do nothing: a step holds only resources of the job."""
    return SLURM_SUCCESS


def select_p_resv_test(
    resv_desc_ptr: ReservationRequest, node_cnt: int, avail_bitmap: bitarray, core_bitmap: Output | None
) -> bitarray | None:
    """Return nodes for a reservation, or None; write into `core_bitmap` the first free cores of each node."""
    taken = core_bitmap.value if core_bitmap is not None else None
    found = reservations.reserve(_Plugin.state, resv_desc_ptr, node_cnt, avail_bitmap, taken, slurmctld.now())
    if found is None:
        return None
    if core_bitmap is not None:
        core_bitmap.value = found[1]
    return found[0]


def select_p_get_info_from_plugin(dinfo: int, job_ptr: JobRecord | None, data: Output) -> int:
    """Write the plugin's number or configuration into `data`."""
    if dinfo == SELECT_CR_PLUGIN:
        return told(data, _CONS_TRES)
    if dinfo == SELECT_CONFIG_INFO:
        return told(data, information.configuration(_Plugin.parameters))
    return SLURM_ERROR


def select_p_ba_init(node_info_ptr: NodeInfoMessage, sanity_check: bool) -> None:
    """Do nothing: nodes have no coordinates."""


def select_p_ba_get_dims() -> list[int] | None:
    """Return None: nodes have no coordinates."""
    return None
