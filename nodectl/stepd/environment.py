"""The environment of a step and of each task: Slurm's variables, as far as they apply to one node.

Pure functions over a Step. Base is what the client sent (it has applied --export); the step's variables overwrite it,
the task's overwrite those. Names and formats are Slurm's.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.step import Step, Task

# NAME=VALUE and its NUL must not be longer to be passed to a program: MAX_ARG_STRLEN, execve(2).
LONGEST = 128 * 1024


def for_step(step: "Step") -> dict[str, str]:
    """Variables that are the same for every task of the step."""
    job, ntasks, cpus = str(step.job_id), str(step.ntasks), str(step.cpus)
    variables = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_STEP_ID": str(step.step_id),
        "SLURM_STEPID": str(step.step_id),
        "SLURM_JOB_NAME": step.name,
        "SLURM_JOB_UID": str(step.uid),
        "SLURM_JOB_GID": str(step.gid),
        "SLURM_JOB_USER": step.user_name,
        "SLURM_JOB_START_TIME": str(int(step.submitted)),
        "SLURM_JOB_CPUS_PER_NODE": cpus,
        "SLURM_CPUS_ON_NODE": str(step.step_cpus.bit_count()),
        "SLURM_NODEID": "0",
        "SLURM_GTIDS": ",".join(map(str, range(step.ntasks))),
        "SLURMD_NODENAME": step.node_name,
        "SLURM_UMASK": f"0{step.umask:03o}",
    }
    if step.time_limit:
        variables["SLURM_JOB_END_TIME"] = str(int(step.submitted) + step.time_limit)
    for name in ("NTASKS", "NPROCS", "STEP_NUM_TASKS", "TASKS_PER_NODE", "STEP_TASKS_PER_NODE"):
        variables[f"SLURM_{name}"] = ntasks
    for name in ("NNODES", "STEP_NUM_NODES", "JOB_NUM_NODES"):
        variables[f"SLURM_{name}"] = "1"
    for name in ("NODELIST", "JOB_NODELIST", "STEP_NODELIST"):
        variables[f"SLURM_{name}"] = step.node_name
    return variables


def for_task(step: "Step", task: "Task") -> dict[str, str]:
    """The whole environment of one task; SLURM_TASK_PID is added by the task itself, which alone knows its pid."""
    rank = str(task.global_id)
    environment = {**step.environment, "SLURM_PROCID": rank, "SLURM_LOCALID": str(task.local_id)}
    if step.task_variables:
        environment.update(step.task_variables[task.local_id])
    return {name: value for name, value in environment.items() if _bytes(name) + _bytes(value) + 2 <= LONGEST}


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
