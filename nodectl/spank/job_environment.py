"""The environment of a job's prologs and epilogs: a fixed list of Slurm's names, and the variables set by plugins.

Pure functions over a Step. The scripts run as root, so their environment has no variable of the user: the names are
ours, or begin with SPANK_. The user's choices (directory, SPANK_*) are values only.
"""

import os

from nodectl.spank.handle import forwarding_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.model.step import Step

_SPANK = "SPANK_"
_SIGNAL_BASE = 128


def for_job(step: "Step", context: str, record: "Mapping[str, object] | None" = None) -> dict[str, str]:
    """Return the environment of a job's hook and script. `context` is SLURM_SCRIPT_CONTEXT.

    With the step's `record` the environment also says how the step ended.
    """
    job, uid, nodes = str(step.job_id), str(step.uid), step.node_name
    variables = {
        **step.job_control,
        "LANG": "C.UTF-8",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SLURMD_NODENAME": nodes,
        "SLURM_CLUSTER_NAME": step.cluster_name,
        "SLURM_JOBID": job,
        "SLURM_JOB_CPUS_PER_NODE": str(step.cpus),
        "SLURM_JOB_GID": str(step.gid),
        "SLURM_JOB_ID": job,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NTASKS": str(step.ntasks),
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_PARTITION": step.partition,
        "SLURM_JOB_RESTART_COUNT": str(step.restart or 0),
        "SLURM_JOB_START_TIME": str(int(step.submitted)),
        "SLURM_JOB_UID": uid,
        "SLURM_JOB_USER": step.user_name,
        "SLURM_JOB_WORK_DIR": step.cwd,
        "SLURM_NODELIST": nodes,
        "SLURM_SCRIPT_CONTEXT": context,
        "SLURM_UID": uid,
    }
    if step.array_job:
        variables |= {"SLURM_ARRAY_JOB_ID": str(step.array_job), "SLURM_ARRAY_TASK_ID": str(step.array_task)}
    if step.time_limit:
        variables["SLURM_JOB_END_TIME"] = str(int(step.submitted) + step.time_limit)
    return variables if record is None else {**variables, **_ending(record)}


def options(step: "Step") -> dict[str, str]:
    """Return the user's options as variables, for scripts and for spank_option_getopt.

    spank_option_getopt needs them in a process that called no option callback.
    """
    return {
        f"{_SPANK}{forwarding_name(plugin, name)}": argument[0] if argument else ""
        for plugin, name, *argument in step.options
    }


def _ending(record: "Mapping[str, object]") -> dict[str, str]:
    """Return the job's exit status as wait statuses and as code:signal."""
    status = int(str(record["exit_status"]))
    tasks: list[Mapping[str, object]] = record["tasks"]  # type: ignore[assignment]
    signalled = any(task["status"] is not None and os.WIFSIGNALED(int(str(task["status"]))) for task in tasks)
    code, number = (0, status - _SIGNAL_BASE) if signalled and status > _SIGNAL_BASE else (status, 0)
    wait_status = str(code << 8 | number)
    return {
        "SLURM_JOB_DERIVED_EC": wait_status,
        "SLURM_JOB_EXIT_CODE": wait_status,
        "SLURM_JOB_EXIT_CODE2": f"{code}:{number}",
    }
