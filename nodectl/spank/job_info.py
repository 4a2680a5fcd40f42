"""Jobs of this node as returned by slurm_load_job: the members of Slurm's struct job_info by name.

A process knows its own job. It looks for any other job among the files of steps, which only root can read; the file of
a job's first step describes the job (docs/decisions/0014). A member that is not listed here is NULL or 0.
"""

import os

from nodectl.kernel import pseudo_file
from nodectl.model import launch_order
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH, EXTERN, step_name
from nodectl.model.wire import lean_json
from nodectl.spank.spank_h import ESLURM_INVALID_JOB_ID, SpankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.spank.handle import Spank

STEPS = [""]
"""The directory of the files of steps, "" in a process that has nothing to do with them."""

_NO_VAL16, _NO_VAL, _INFINITE = 0xFFFE, 0xFFFFFFFE, 0xFFFFFFFF
_RUNNING, _COMPLETE, _COMPLETING = 1, 3, 0x8000
_UNTOUCHED = 0x80000000  # NICE_OFFSET: the nice value was not changed
_YEAR = 365 * 86400
_PARTITION = "local"  # in the command, which does not know the node's partition


def members(sp: "Spank", job_id: int) -> dict[str, object]:
    """Return the job's members. Raises SpankError(ESLURM_INVALID_JOB_ID) for an unknown job."""
    if sp.step is not None and sp.step.job_id == job_id:
        return of_step(sp.step, over=sp.hook == launch_order.SPANK_JOB_EPILOG.call)
    for number in (BATCH, EXTERN, 0):
        try:
            data = pseudo_file.read(os.path.join(STEPS[0], f"{step_name(job_id, number)}.json")) if STEPS[0] else b""
        except OSError:
            continue
        if data:
            return of_step(Step.from_json(lean_json.load_object(data)))
    raise SpankError(ESLURM_INVALID_JOB_ID, f"job {job_id}")


def of_step(step: Step, *, over: bool = False) -> dict[str, object]:
    """Return the members of the step's job; in the command, before the launch, the step has no node yet."""
    begin, cpus_per_task = int(step.submitted or 0), step.cpus_per_task or 1
    cpus = step.cpus or step.ntasks * cpus_per_task
    return {
        **dict.fromkeys(("cpu_freq_min", "cpu_freq_max", "cpu_freq_gov"), _NO_VAL),
        **dict.fromkeys(("step_het_comp", "step_id"), _NO_VAL),  # of the record's step_id, which names the job
        **dict.fromkeys(
            (
                "boards_per_node", "core_spec", "cores_per_socket", "ntasks_per_core", "ntasks_per_tres",
                "ntasks_per_board", "ntasks_per_socket", "sockets_per_board", "sockets_per_node", "threads_per_core",
            ),
            _NO_VAL16,
        ),
        **dict.fromkeys(("accrue_time", "eligible_time", "start_time", "submit_time"), begin),
        "array_job_id": step.array_job or 0,
        "array_task_id": step.array_task_id,
        "alloc_node": step.node_name,
        "batch_flag": int(step.first_step == BATCH),
        "batch_host": step.node_name,
        "billable_tres": cpus,
        "cluster": step.cluster_name or None,
        "command": step.argv[0] if step.argv else None,
        "cpus_per_task": cpus_per_task,
        "end_time": begin + (step.time_limit or _YEAR) if begin else 0,
        "gres_total": _gres(step),
        "group_id": step.gid,
        "job_id": step.job_id,
        "job_state": _COMPLETE | _COMPLETING if over else _RUNNING,
        "name": step.name or (os.path.basename(step.argv[0]) if step.argv else None),
        "nice": _UNTOUCHED,
        "node_inx": True,  # the first to the first
        "nodes": step.nodelist,
        "num_cpus": cpus,
        "num_nodes": step.nnodes,
        "num_tasks": step.total_tasks,
        "partition": step.partition or _PARTITION,
        "pn_min_cpus": 1,
        "pn_min_memory": step.memory or 0,
        "priority": 1,
        "restart_cnt": step.restart or 0,
        "std_err": step.stderr or None,
        "std_in": step.stdin or None,
        "std_out": step.stdout or None,
        "time_limit": -(-step.time_limit // 60) if step.time_limit else _INFINITE,
        "tres_alloc_str": _tres(step, cpus),
        "tres_req_str": _tres(step, cpus),
        "user_id": step.uid,
        "user_name": step.user_name,
        "work_dir": step.cwd,
    }  # fmt: skip


def _counts(step: Step) -> dict[str, int]:
    """Return the number of the job's devices by name."""
    names = [device.partition(":")[0] for device in step.devices or ()]
    return {name: names.count(name) for name in sorted(set(names))}


def _gres(step: Step) -> "str | None":
    return ",".join(f"{name}:{count}" for name, count in _counts(step).items()) or None


def _tres(step: Step, cpus: int) -> str:
    words = [f"cpu={cpus}", *([f"mem={step.memory}M"] if step.memory else []), "node=1", f"billing={cpus}"]
    return ",".join(words + [f"gres/{name}={count}" for name, count in _counts(step).items()])
