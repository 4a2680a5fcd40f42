"""A select plugin that has every function of the document, in the document's words, and writes down each call.

It gives whole nodes, the first that are offered, and counts its jobs on each. `State.calls` are the names of the
functions with the types of their arguments, in the order of the calls; where a file select_tracer.calls lies in the
directory of its state, they are written there too, one JSON list a line. So a daemon's calls can be read.
"""

import json
import os
from typing import Any

plugin_type = f"select/{os.path.basename(__file__)[: -len('.py')]}"
plugin_name = "tracer of the select interface"
plugin_version = 0x160508

MAGIC = 0x5E1EC7
SLURM_SUCCESS, SLURM_ERROR = 0, -1
WILL_RUN = 2


class State:
    """What a plugin in C has in global variables."""

    nodes: Any = ()
    jobs: "dict[int, Any]" = {}  # noqa: RUF012 - as above
    calls: "list[Any]" = []  # noqa: RUF012
    dims: "list[int]" = []  # noqa: RUF012
    out = ""


class Info:
    """Of a node or a job."""

    def __init__(self, text: str = "") -> None:
        self.text = text


def trace(name: str, *arguments: object) -> None:
    """Writes the call down."""
    call = [name, [type(argument).__name__ for argument in arguments]]
    State.calls.append(call)
    if State.out:
        _write([call])


def _write(calls: "list[Any]") -> None:
    with open(State.out, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(call) + "\n" for call in calls)


def init() -> Any:
    trace("init")
    State.jobs = {}
    return SLURM_SUCCESS


def fini() -> None:
    trace("fini")


def select_p_state_save(dir_name: Any) -> Any:
    trace("select_p_state_save", dir_name)
    with open(f"{dir_name}/select_tracer.state", "w", encoding="ascii") as file:
        file.write(f"{MAGIC}")
    return SLURM_SUCCESS


def select_p_state_restore(dir_name: Any) -> Any:
    if os.path.exists(f"{dir_name}/select_tracer.calls"):
        State.out = f"{dir_name}/select_tracer.calls"
        _write(State.calls)
    trace("select_p_state_restore", dir_name)
    try:
        with open(f"{dir_name}/select_tracer.state", encoding="ascii") as file:
            return SLURM_SUCCESS if int(file.read()) == MAGIC else SLURM_ERROR
    except FileNotFoundError:
        return SLURM_SUCCESS


def select_p_node_init(node_ptr: Any, node_cnt: Any) -> Any:
    trace("select_p_node_init", node_ptr, node_cnt)
    State.nodes = node_ptr
    State.jobs = {}
    return SLURM_SUCCESS if len([node.name for node in node_ptr]) == node_cnt else SLURM_ERROR


def select_p_job_init(job_list: Any) -> Any:
    trace("select_p_job_init", job_list)
    for job_ptr in job_list:
        State.jobs[job_ptr.job_id] = job_ptr.node_bitmap.copy()
    return SLURM_SUCCESS


def select_p_reconfigure() -> Any:
    trace("select_p_reconfigure")
    return SLURM_SUCCESS


def select_p_select_nodeinfo_alloc() -> Any:
    trace("select_p_select_nodeinfo_alloc")
    return Info()


def select_p_select_nodeinfo_pack(nodeinfo: Any, buffer: Any, protocol_version: Any) -> Any:
    trace("select_p_select_nodeinfo_pack", nodeinfo, buffer, protocol_version)
    buffer.pack32(MAGIC)
    buffer.packstr(nodeinfo.text)
    return SLURM_SUCCESS


def select_p_select_nodeinfo_unpack(nodeinfo: Any, buffer: Any, protocol_version: Any) -> Any:
    trace("select_p_select_nodeinfo_unpack", nodeinfo, buffer, protocol_version)
    if buffer.unpack32() != MAGIC:
        return SLURM_ERROR
    nodeinfo.value = Info(buffer.unpackstr())
    return SLURM_SUCCESS


def select_p_select_nodeinfo_free(nodeinfo: Any) -> Any:
    trace("select_p_select_nodeinfo_free", nodeinfo)
    return SLURM_SUCCESS


def select_p_select_nodeinfo_set(job_ptr: Any) -> Any:
    trace("select_p_select_nodeinfo_set", job_ptr)
    return SLURM_SUCCESS


def select_p_select_nodeinfo_set_all() -> Any:
    trace("select_p_select_nodeinfo_set_all")
    for index, node in enumerate(State.nodes):
        node.select_nodeinfo.text = str(sum(held[index] for held in State.jobs.values()))
    return SLURM_SUCCESS


def select_p_select_nodeinfo_get(nodeinfo: Any, dinfo: Any, state: Any, data: Any) -> Any:
    trace("select_p_select_nodeinfo_get", nodeinfo, dinfo, state, data)
    data.value = int(nodeinfo.text or "0")
    return SLURM_SUCCESS


def select_p_update_node_config(index: Any) -> Any:
    trace("select_p_update_node_config", index)
    return SLURM_SUCCESS if 0 <= index < len(State.nodes) else SLURM_ERROR


def select_p_node_ranking(node_ptr: Any, node_cnt: Any) -> Any:
    trace("select_p_node_ranking", node_ptr, node_cnt)
    for rank, node in enumerate(node_ptr):
        node.node_rank = rank
    return True


def select_p_update_node_state(node_ptr: Any) -> Any:
    trace("select_p_update_node_state", node_ptr)
    return SLURM_SUCCESS


def select_p_select_jobinfo_alloc() -> Any:
    trace("select_p_select_jobinfo_alloc")
    return Info()


def select_p_select_jobinfo_copy(jobinfo: Any) -> Any:
    trace("select_p_select_jobinfo_copy", jobinfo)
    return Info(jobinfo.text)


def select_p_select_jobinfo_free(jobinfo: Any) -> Any:
    trace("select_p_select_jobinfo_free", jobinfo)
    return SLURM_SUCCESS


def select_p_select_jobinfo_pack(jobinfo: Any, buffer: Any, protocol_version: Any) -> Any:
    trace("select_p_select_jobinfo_pack", jobinfo, buffer, protocol_version)
    buffer.pack32(MAGIC)
    buffer.packstr(jobinfo.text)
    return SLURM_SUCCESS


def select_p_select_jobinfo_unpack(jobinfo_pptr: Any, buffer: Any, protocol_version: Any) -> Any:
    trace("select_p_select_jobinfo_unpack", jobinfo_pptr, buffer, protocol_version)
    if buffer.unpack32() != MAGIC:
        return SLURM_ERROR
    jobinfo_pptr.value = Info(buffer.unpackstr())
    return SLURM_SUCCESS


def select_p_select_jobinfo_get(jobinfo: Any, data_type: Any, data: Any) -> Any:
    trace("select_p_select_jobinfo_get", jobinfo, data_type, data)
    data.value = jobinfo.text
    return SLURM_SUCCESS


def select_p_select_jobinfo_set(jobinfo: Any, data_type: Any, data: Any) -> Any:
    trace("select_p_select_jobinfo_set", jobinfo, data_type, data)
    jobinfo.text = data
    return SLURM_SUCCESS


def select_p_select_jobinfo_sprint(jobinfo: Any, buf: Any, size: Any, mode: Any) -> Any:
    trace("select_p_select_jobinfo_sprint", jobinfo, buf, size, mode)
    text = f"network={jobinfo.text}".encode()[: size - 1] + b"\0"
    buf[: len(text)] = text
    return buf


def select_p_select_jobinfo_xstrdup(jobinfo: Any, mode: Any) -> Any:
    trace("select_p_select_jobinfo_xstrdup", jobinfo, mode)
    return f"network={jobinfo.text}"


def select_p_job_test(
    job_ptr: Any,
    bitmap: Any,
    min_nodes: Any,
    max_nodes: Any,
    req_nodes: Any,
    mode: Any,
    preemption_candidates: Any,
    preempted_jobs: Any,
    exc_core_bitmap: Any,
) -> Any:
    trace(
        "select_p_job_test",
        job_ptr,
        bitmap,
        min_nodes,
        max_nodes,
        req_nodes,
        mode,
        preemption_candidates,
        preempted_jobs,
        exc_core_bitmap,
    )
    required = job_ptr.details.req_node_bitmap
    free = [node for node in range(len(bitmap)) if bitmap[node]]
    if mode == 0:
        free = [node for node in free if not any(held[node] for held in State.jobs.values())]
    if exc_core_bitmap is not None:
        free = [
            node
            for node in free
            if not exc_core_bitmap[
                State.nodes[node].core_offset : State.nodes[node].core_offset + State.nodes[node].cores
            ].any()
        ]
    free.sort(key=lambda node: not (required is not None and required[node]))
    chosen = free[: max(req_nodes, min_nodes)]
    if len(chosen) < min_nodes or len(chosen) > max_nodes:
        return SLURM_ERROR
    bitmap.setall(0)
    for node in chosen:
        bitmap[node] = 1
    preempted_jobs.value = []
    if mode == WILL_RUN:
        job_ptr.start_time = 0
    return SLURM_SUCCESS


def select_p_job_begin(job_ptr: Any) -> Any:
    trace("select_p_job_begin", job_ptr)
    State.jobs[job_ptr.job_id] = job_ptr.node_bitmap.copy()
    return SLURM_SUCCESS


def select_p_job_ready(job_ptr: Any) -> Any:
    trace("select_p_job_ready", job_ptr)
    return 1


def select_p_job_fini(job_ptr: Any) -> Any:
    trace("select_p_job_fini", job_ptr)
    State.jobs.pop(job_ptr.job_id, None)
    return SLURM_SUCCESS


def select_p_job_signal(job_ptr: Any, signal: Any) -> Any:
    trace("select_p_job_signal", job_ptr, signal)
    return SLURM_SUCCESS


def select_p_job_mem_confirm(job_ptr: Any) -> Any:
    trace("select_p_job_mem_confirm", job_ptr)
    return SLURM_SUCCESS


def select_p_job_suspend(job_ptr: Any, indf_susp: Any) -> Any:
    trace("select_p_job_suspend", job_ptr, indf_susp)
    State.jobs.pop(job_ptr.job_id, None)
    return SLURM_SUCCESS


def select_p_job_resume(job_ptr: Any, indf_susp: Any) -> Any:
    trace("select_p_job_resume", job_ptr, indf_susp)
    State.jobs[job_ptr.job_id] = job_ptr.node_bitmap.copy()
    return SLURM_SUCCESS


def select_p_job_expand_allow() -> Any:
    trace("select_p_job_expand_allow")
    return True


def select_p_job_expand(from_job_ptr: Any, to_job_ptr: Any) -> Any:
    trace("select_p_job_expand", from_job_ptr, to_job_ptr)
    State.jobs[to_job_ptr.job_id] |= State.jobs.pop(from_job_ptr.job_id)
    return SLURM_SUCCESS


def select_p_job_resized(job_ptr: Any, node_ptr: Any) -> Any:
    trace("select_p_job_resized", job_ptr, node_ptr)
    State.jobs[job_ptr.job_id][node_ptr.index] = 0
    return SLURM_SUCCESS


def select_p_step_pick_nodes(job_ptr: Any, step_jobinfo: Any, node_count: Any) -> None:
    trace("select_p_step_pick_nodes", job_ptr, step_jobinfo, node_count)
    step_jobinfo.text = f"{node_count} nodes"


def select_p_step_finish(step_ptr: Any, killing_step: Any) -> Any:
    trace("select_p_step_finish", step_ptr, killing_step)
    return SLURM_SUCCESS


def select_p_resv_test(resv_desc_ptr: Any, node_cnt: Any, avail_bitmap: Any, core_bitmap: Any) -> Any:
    trace("select_p_resv_test", resv_desc_ptr, node_cnt, avail_bitmap, core_bitmap)
    chosen = avail_bitmap.copy()
    while chosen.count() > node_cnt:
        chosen[chosen.find(1)] = 0
    return chosen if chosen.count() == node_cnt else None


def select_p_get_info_from_plugin(dinfo: Any, job_ptr: Any, data: Any) -> Any:
    trace("select_p_get_info_from_plugin", dinfo, job_ptr, data)
    data.value = 0
    return SLURM_SUCCESS


def select_p_ba_init(node_info_ptr: Any, sanity_check: Any) -> None:
    trace("select_p_ba_init", node_info_ptr, sanity_check)
    State.dims = [node_info_ptr.record_count]


def select_p_ba_get_dims() -> Any:
    trace("select_p_ba_get_dims")
    return State.dims
