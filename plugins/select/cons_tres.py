"""select/cons_tres: CPUs, cores or sockets of nodes, their memory and their devices, as SelectTypeParameters says.

The rules are those of Slurm's plugin of this name as they were measured; `nodectl.selection.tres` knows them. What is
taken follows from the jobs' records, so that the state file holds no more than its magic number and version.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from bitarray import bitarray

from nodectl.binding.refused import Refused
from nodectl.plugin_api import SLURM_ERROR, SLURM_SUCCESS, PluginError, set_errno
from nodectl.selection import resources, slurmctld, state_file
from nodectl.selection.buffer import Buf
from nodectl.selection.calls import idle
from nodectl.selection.modes import (
    SELECT_CONFIG_INFO,
    SELECT_CR_PLUGIN,
    SELECT_JOBDATA_NETWORK,
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
from nodectl.selection.tres.information import JobInfo, NodeInfo, freed, is_ours, told, unpacked
from nodectl.selection.tres.question import Question
from nodectl.selection.tres.search import Placement
from nodectl.selection.tres.state import State
from nodectl.selection.tres.wish import Wishes

plugin_type = "select/cons_tres"
plugin_name = "cores, memory and devices of nodes that jobs share"
plugin_version = (22, 5, 8)

_FILE, _MAGIC, _VERSION = "select_cons_tres", 0x7E550FC5, 1
_CONS_TRES = 2  # what SELECT_CR_PLUGIN tells of select/cons_tres
ESLURM_NODES_BUSY, ESLURM_NOT_SUPPORTED, ESLURM_NEVER = 2016, 2018, 2014


class _Plugin:
    parameters = slurmctld.Parameters()
    state: State


def select_p_state_save(dir_name: str) -> int:
    """Writes magic number and version."""
    state_file.save(dir_name, _FILE, _MAGIC, _VERSION)
    return SLURM_SUCCESS


def select_p_state_restore(dir_name: str) -> int:
    """Checks what state_save wrote."""
    state_file.check(dir_name, _FILE, _MAGIC, _VERSION)
    return SLURM_SUCCESS


def select_p_node_init(node_ptr: Sequence[NodeRecord], node_cnt: int) -> int:
    """Reads the nodes; nobody uses them yet."""
    del node_cnt
    _Plugin.parameters = slurmctld.parameters()
    _Plugin.state = State(node_ptr, Wishes(_Plugin.parameters))  # type: ignore[arg-type]  # the host's is a NodeTable
    return SLURM_SUCCESS


def select_p_job_init(job_list: Sequence[JobRecord]) -> int:
    """What the jobs hold by their records is taken."""
    _Plugin.state.restore(job_list)
    return SLURM_SUCCESS


def select_p_reconfigure() -> int:
    """Takes the configuration as it is now; jobs keep what they have."""
    _Plugin.parameters = slurmctld.parameters()
    _Plugin.state.wishes = Wishes(_Plugin.parameters)
    return SLURM_SUCCESS


def select_p_select_nodeinfo_alloc() -> NodeInfo:
    """A new object, of an idle node."""
    return NodeInfo()


def select_p_select_nodeinfo_pack(nodeinfo: NodeInfo, buffer: Buf, protocol_version: int) -> int:
    """Appends it."""
    del protocol_version
    if not is_ours(nodeinfo, NodeInfo):
        return SLURM_ERROR
    nodeinfo.pack(buffer)
    return SLURM_SUCCESS


def select_p_select_nodeinfo_unpack(nodeinfo: Output, buffer: Buf, protocol_version: int) -> int:
    """Reads what pack wrote."""
    del protocol_version
    return unpacked(nodeinfo, buffer, NodeInfo)


def select_p_select_nodeinfo_free(nodeinfo: NodeInfo) -> int:
    """It is used no more."""
    return freed(nodeinfo, NodeInfo)


def select_p_select_nodeinfo_set(job_ptr: JobRecord) -> int:
    """Brings the nodes of a job up to date."""
    for node in job_ptr.node_bitmap.search(1) if job_ptr.node_bitmap is not None else ():
        information.note(_Plugin.state, node)
    return SLURM_SUCCESS


def select_p_select_nodeinfo_set_all() -> int:
    """Brings all nodes up to date of which something has changed."""
    changed = _Plugin.state.changed
    while changed:
        information.note(_Plugin.state, changed.pop())
    return SLURM_SUCCESS


def select_p_select_nodeinfo_get(nodeinfo: NodeInfo, dinfo: int, state: int, data: Output) -> int:
    """One of its values."""
    return told(data, nodeinfo.get(dinfo, state) if is_ours(nodeinfo, NodeInfo) else None)


def select_p_update_node_config(index: int) -> int:
    """The node has another configuration than before."""
    _Plugin.state.renew(_Plugin.state.table[index])
    return SLURM_SUCCESS


def select_p_node_ranking(node_ptr: Sequence[NodeRecord], node_cnt: int) -> bool:
    """Nodes have no ranks here: no network is between them."""
    del node_ptr, node_cnt
    return False


@idle
def select_p_update_node_state(node_ptr: NodeRecord) -> int:
    """Which nodes may start jobs the host says with each question."""
    del node_ptr
    return SLURM_SUCCESS


def select_p_select_jobinfo_alloc() -> JobInfo:
    """A new object."""
    return JobInfo()


def select_p_select_jobinfo_copy(jobinfo: JobInfo) -> JobInfo | None:
    """Another of the same values."""
    return JobInfo(jobinfo.network) if is_ours(jobinfo, JobInfo) else None


def select_p_select_jobinfo_free(jobinfo: JobInfo) -> int:
    """It is used no more."""
    return freed(jobinfo, JobInfo)


def select_p_select_jobinfo_pack(jobinfo: JobInfo, buffer: Buf, protocol_version: int) -> int:
    """Appends it."""
    del protocol_version
    if not is_ours(jobinfo, JobInfo):
        return SLURM_ERROR
    jobinfo.pack(buffer)
    return SLURM_SUCCESS


def select_p_select_jobinfo_unpack(jobinfo_pptr: Output, buffer: Buf, protocol_version: int) -> int:
    """Reads what pack wrote."""
    del protocol_version
    return unpacked(jobinfo_pptr, buffer, JobInfo)


def select_p_select_jobinfo_get(jobinfo: JobInfo, data_type: int, data: Output) -> int:
    """One of its values."""
    return told(data, jobinfo.get(data_type) if is_ours(jobinfo, JobInfo) else None)


def select_p_select_jobinfo_set(jobinfo: JobInfo, data_type: int, data: object) -> int:
    """Sets the network that the job asked for, which is all that can be set."""
    if not is_ours(jobinfo, JobInfo) or data_type != SELECT_JOBDATA_NETWORK:
        return SLURM_ERROR
    jobinfo.network = str(data)
    return SLURM_SUCCESS


def select_p_select_jobinfo_sprint(jobinfo: JobInfo, buf: bytearray, size: int, mode: int) -> bytearray | None:
    """Writes it into `buf` as a C string."""
    text = select_p_select_jobinfo_xstrdup(jobinfo, mode)
    if text is None or size < 1:
        return None
    written = text.encode("utf-8", "replace")[: size - 1] + b"\0"
    buf[: len(written)] = written
    return buf


def select_p_select_jobinfo_xstrdup(jobinfo: JobInfo, mode: int) -> str | None:
    """As a text."""
    return jobinfo.shown(mode) if is_ours(jobinfo, JobInfo) and 0 <= mode <= 2 else None


def select_p_job_test(  # as the document has it
    job_ptr: JobRecord, bitmap: bitarray, min_nodes: int, max_nodes: int, req_nodes: int, mode: int,
    preemption_candidates: list[JobRecord] | None, preempted_jobs: Output | None, exc_core_bitmap: bitarray | None,
) -> int:  # fmt: skip
    """Chooses nodes out of `bitmap`, and cores, memory and devices of them, which job_resrcs has then."""
    state, details = _Plugin.state, job_ptr.details
    required = details.req_node_bitmap
    try:
        goal = state.wishes.goal(
            job_ptr, min_nodes, max_nodes, req_nodes, [] if required is None else list(required.search(1))
        )
    except Refused as refused:
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
    """The job holds what job_test gave it."""
    taken = _Plugin.state.begin(job_ptr)
    if taken:
        set_errno(ESLURM_NODES_BUSY, taken)
        return SLURM_ERROR
    return SLURM_SUCCESS


@idle
def select_p_job_ready(job_ptr: JobRecord) -> int:
    """1: nodes need no preparation."""
    del job_ptr
    return 1


def select_p_job_fini(job_ptr: JobRecord) -> int:
    """The job holds nothing any more; none that held nothing is refused, for calls may be replayed."""
    _Plugin.state.finish(job_ptr)
    return SLURM_SUCCESS


@idle
def select_p_job_signal(job_ptr: JobRecord, signal: int) -> int:
    """Nothing to do: the steps are the daemon's own."""
    del job_ptr, signal
    return SLURM_SUCCESS


def select_p_job_mem_confirm(job_ptr: JobRecord) -> int:
    """Fails where a node has less memory by now than its jobs hold."""
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
    """Gives the cores of a job back that is suspended until somebody says otherwise; memory and devices stay its."""
    return SLURM_SUCCESS if not indf_susp or _Plugin.state.suspend(job_ptr) else SLURM_ERROR


def select_p_job_resume(job_ptr: JobRecord, indf_susp: bool) -> int:
    """Takes the cores again; fails while others have them."""
    taken = _Plugin.state.resume(job_ptr) if indf_susp else ""
    if taken:
        set_errno(ESLURM_NODES_BUSY, taken)
        return SLURM_ERROR
    return SLURM_SUCCESS


def select_p_job_expand_allow() -> bool:
    """It can be done."""
    return True


def select_p_job_expand(from_job_ptr: JobRecord, to_job_ptr: JobRecord) -> int:
    """All that one job holds is the other's."""
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
    """The job gives up a node, but never its last one."""
    held = job_ptr.job_resrcs
    if held is None or not _Plugin.state.shrink(job_ptr, node_ptr.index):
        set_errno(errno.EINVAL, f"job {job_ptr.job_id} cannot give up node {node_ptr.name}")
        return SLURM_ERROR
    job_ptr.job_resrcs = resources.without(held, node_ptr.index, _Plugin.state.table)
    job_ptr.node_bitmap = job_ptr.job_resrcs.node_bitmap.copy()
    return SLURM_SUCCESS


@idle
def select_p_step_pick_nodes(job_ptr: JobRecord, step_jobinfo: JobInfo, node_count: int) -> bitarray | None:
    """Leaves the choice to the host."""
    del job_ptr, step_jobinfo, node_count
    return None


@idle
def select_p_step_finish(step_ptr: StepRecord, killing_step: bool) -> int:
    """Nothing to do: steps hold nothing but of their job."""
    del step_ptr, killing_step
    return SLURM_SUCCESS


def select_p_resv_test(
    resv_desc_ptr: ReservationRequest, node_cnt: int, avail_bitmap: bitarray, core_bitmap: Output | None
) -> bitarray | None:
    """Nodes for a reservation, and of each the first cores that jobs will have left."""
    taken = core_bitmap.value if core_bitmap is not None else None
    found = reservations.reserve(_Plugin.state, resv_desc_ptr, node_cnt, avail_bitmap, taken, slurmctld.now())
    if found is None:
        return None
    if core_bitmap is not None:
        core_bitmap.value = found[1]
    return found[0]


def select_p_get_info_from_plugin(dinfo: int, job_ptr: JobRecord | None, data: Output) -> int:
    """Which plugin this is, and its configuration."""
    del job_ptr
    if dinfo == SELECT_CR_PLUGIN:
        return told(data, _CONS_TRES)
    if dinfo == SELECT_CONFIG_INFO:
        return told(data, information.configuration(_Plugin.parameters))
    return SLURM_ERROR


def select_p_ba_init(node_info_ptr: NodeInfoMessage, sanity_check: bool) -> None:
    """Nothing to do: nodes have no coordinates."""
    del node_info_ptr, sanity_check


def select_p_ba_get_dims() -> list[int] | None:
    """None: nodes have no coordinates."""
    return None
