"""The environment of a step and of each task: Slurm's variables.

Pure functions over a Step. It begins with what the client sent, which has applied --export. The step's variables
replace those, and the task's replace the step's. Names and formats are Slurm's.
"""

from nodectl.model.step_number import BATCH, environment_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.model.step import Step, Task

# NAME=VALUE and its NUL must not be longer to be passed to a program: MAX_ARG_STRLEN, execve(2).
LONGEST = 128 * 1024
_OF_LAUNCHER = {
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",  # of the command that started the step
    "SLURM_SRUN_COMM_HOST": "127.0.0.1",
    "SLURM_SRUN_COMM_PORT": "0",  # it listens on none; a number, as programs read it as one
}
_OF_JOB = (
    "SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_NUM_NODES", "SLURM_NODELIST",
    "SLURM_JOB_NODELIST", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT",
)  # fmt: skip
"""What a step over several nodes is told of its job, which is no job of this node's: what it came with is right."""
_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
_LAUNCHERS = {"HYDRA_LAUNCHER": "fork", "OMPI_MCA_plm": "^slurm", "PRTE_MCA_plm": "^slurm"}
_LAUNCHERS_ALONE = {**_LAUNCHERS, "OMPI_MCA_ras": "^slurm", "PRTE_MCA_ras": "^slurm"}
_SHORT = LONGEST // 4  # characters, of at most four bytes each


def announced(step: "Step") -> dict[str, str]:
    """The variables that Slurm's client sends: there before the first hook, and hooks may change them."""
    variables = {
        **_identity(step),
        "SLURM_CLUSTER_NAME": step.cluster_name,
        "SLURM_JOB_PARTITION": step.partition,
        "SLURM_JOB_CPUS_PER_NODE": str(step.cpus),
        "SLURM_TOPOLOGY_ADDR": step.node_name,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    }
    if step.step_id != BATCH:
        variables |= {**_OF_LAUNCHER, "SLURM_UMASK": f"0{step.umask:03o}"}
    if step.is_first:
        variables["SLURM_JOB_NAME"] = step.name  # of a further step it is in the environment that it came with
    for name in ("NNODES", "JOB_NUM_NODES"):
        variables[f"SLURM_{name}"] = str(step.nnodes)
    for name in ("NODELIST", "JOB_NODELIST"):
        variables[f"SLURM_{name}"] = step.nodelist
    if step.part is not None:
        variables |= {name: step.environment[name] for name in _OF_JOB if name in step.environment}
    if step.step_id != BATCH:
        variables.update(_of_tasks(step))
    return {
        **variables,
        **step.kept,
        **of_launchers(step.environment, alone=step.total_tasks == 1 and step.step_id != BATCH),
    }


def of_launchers(environment: "Mapping[str, str]", *, alone: bool) -> dict[str, str]:
    """What the mpiexec of MPICH and of Open MPI have to be told, who see Slurm's variables and look for its srun: that
    they start their ranks themselves. `alone`: in the place of one task, they may have its CPUs. What is there stays.
    """
    wanted = _LAUNCHERS_ALONE if alone else _LAUNCHERS
    return {name: value for name, value in wanted.items() if name not in environment}


def _of_tasks(step: "Step") -> dict[str, str]:
    """Of the step as one of its job's. A script has none of them: its number of tasks is the job's."""
    ntasks, per_node = str(step.total_tasks), step.tasks_per_node
    return {
        "SLURM_NTASKS": ntasks,
        "SLURM_NPROCS": ntasks,
        "SLURM_STEP_NUM_TASKS": ntasks,
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_STEP_NUM_NODES": str(step.nnodes),
        "SLURM_STEP_NODELIST": step.nodelist,
    }


def _identity(step: "Step") -> dict[str, str]:
    """Variables that name the step and its user. A script has no step's number: programs that find one take
    themselves for tasks of srun's, and Open MPI then aborts.
    """
    number = {} if step.step_id == BATCH else dict.fromkeys(_STEP, environment_number(step.step_id))
    return {
        **number,
        "SLURM_JOB_ID": str(step.job_id),
        "SLURM_JOBID": str(step.job_id),
        "NODECTL_JOB_ID": str(step.job_id),  # so that a job of a real Slurm is no job of ours
        "SLURM_JOB_UID": str(step.uid),
        "SLURM_JOB_GID": str(step.gid),
        "SLURM_JOB_USER": step.user_name,
    }


def for_step(step: "Step") -> dict[str, str]:
    """The variables that Slurm's stepd sets for every task, whatever hooks have set."""
    variables = {
        **_identity(step),
        "SLURM_JOB_START_TIME": str(int(step.job_began or step.submitted)),
        "SLURM_CPUS_ON_NODE": str(step.step_cpus.bit_count()),
        "SLURM_NODEID": str(step.nodeid),
        "SLURM_GTIDS": ",".join(map(str, step.numbers)),
        "SLURMD_NODENAME": step.node_name,
    }
    if step.pty:
        _, rows, columns, *_ = step.pty
        variables |= {"SLURM_PTY_WIN_ROW": str(rows), "SLURM_PTY_WIN_COL": str(columns)}
    ends = step.job_ends or (step.is_first and step.time_limit and step.submitted + step.time_limit)
    if ends:
        variables["SLURM_JOB_END_TIME"] = str(int(ends))
    return variables


def of_rank(task: "Task") -> dict[str, str]:
    """Variables that name the task; the step has them, too, in the hooks at the task's end."""
    return {"SLURM_PROCID": str(task.global_id), "SLURM_LOCALID": str(task.local_id)}


def for_tasks(step: "Step") -> dict[str, str]:
    """The environment of all tasks: what of the step's can be passed to a program."""
    return {
        name: value for name, value in step.environment.items() if len(name) + len(value) < _SHORT or _fits(name, value)
    }


def for_task(step: "Step", task: "Task", common: "Mapping[str, str]") -> dict[str, str]:
    """The environment of one task: that of all tasks, and its own variables. The task itself adds SLURM_TASK_PID."""
    environment = {**common, **of_rank(task)}
    if step.task_variables:
        environment.update(step.task_variables[task.local_id])
    return environment


def _fits(name: str, value: str) -> bool:
    return len(f"{name}={value}".encode("utf-8", "surrogateescape")) < LONGEST
