"""The variables of a job's script: Slurm's variables for the whole job, read by the job's steps.

The steps take the options that they are not given from these variables. The stepd adds the variables of every step
(`nodectl/launch/task/environment.py`). Pure functions of values.
"""

import socket

from nodectl.model.step import Step
from nodectl.selection.records import JobRecord

_ASKED = {
    "cpus_per_task": "CPUS_PER_TASK", "ntasks_per_node": "NTASKS_PER_NODE", "ntasks_per_core": "NTASKS_PER_CORE",
    "ntasks_per_socket": "NTASKS_PER_SOCKET", "threads_per_core": "THREADS_PER_CORE", "distribution": "DISTRIBUTION",
    "mem_bind": "MEM_BIND", "hint": "HINT", "gpus": "GPUS", "gpus_per_node": "GPUS_PER_NODE",
    "gpus_per_task": "GPUS_PER_TASK", "gpu_bind": "GPU_BIND",
}  # fmt: skip
"""Options of layout that are told by a variable, so that steps have them too."""


def of_script(step: Step, job: JobRecord) -> dict[str, str]:
    """Return the variables of a job's script step beyond the submitted ones. The step has the job's share already."""
    details = job.details
    tasks = str(details.num_tasks)
    variables = {
        "NTASKS": tasks,
        "NPROCS": tasks,
        "TASKS_PER_NODE": tasks,
        "JOB_QOS": job.qos,
        "SUBMIT_DIR": details.work_dir,
        **{name: details.layout[option] for option, name in _ASKED.items() if details.layout.get(option)},
        **_memory(job),
        **_array(job),
    }
    if details.overcommit:
        variables["OVERCOMMIT"] = "1"
    if job.restart_cnt:
        variables["RESTART_COUNT"] = str(job.restart_cnt)
    if details.dependency:
        variables["JOB_DEPENDENCY"] = details.dependency
    if details.reservation:
        variables["JOB_RESERVATION"] = details.reservation
    told = {f"SLURM_{name}": value for name, value in variables.items()}
    told.setdefault("SLURM_SUBMIT_HOST", step.node_name)
    return {**told, "ENVIRONMENT": "BATCH", "HOSTNAME": socket.gethostname()}


def _memory(job: JobRecord) -> dict[str, str]:
    if job.details.mem_per_cpu:
        return {"MEM_PER_CPU": str(job.details.mem_per_cpu)}
    return {"MEM_PER_NODE": str(job.details.pn_min_memory)} if job.details.pn_min_memory else {}


def _array(job: JobRecord) -> dict[str, str]:
    """Return the variables of an array's task: the array as submitted."""
    if job.array_task_id is None:
        return {}
    variables = {"ARRAY_JOB_ID": str(job.array_job_id), "ARRAY_TASK_ID": str(job.array_task_id)}
    if job.array_span:
        count, least, most, step = job.array_span
        variables |= {
            "ARRAY_TASK_COUNT": str(count), "ARRAY_TASK_MIN": str(least), "ARRAY_TASK_MAX": str(most),
            "ARRAY_TASK_STEP": str(step),
        }  # fmt: skip
    return variables
