"""The environment of a step and of each task: Slurm's variables.

Pure functions over a Step. The environment begins with the client's, to which --export has been applied. The step's
variables replace the client's, and the task's replace the step's. Names and formats are Slurm's.
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
    "SLURM_SRUN_COMM_PORT": "0",  # it listens on no port; a number, because programs read one
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
    """Return the variables sent by Slurm's client: set before the first hook, and changeable by hooks."""
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
    """Return the variables for the mpiexec of MPICH and Open MPI, to start the ranks without srun.

    Both see Slurm's variables and look for Slurm's srun. With `alone`, in the place of a single task, they may use its
    CPUs. Variables already set stay.
    """
    wanted = _LAUNCHERS_ALONE if alone else _LAUNCHERS
    return {name: value for name, value in wanted.items() if name not in environment}


def _of_tasks(step: "Step") -> dict[str, str]:
    """Return the variables of the step among the job's steps.

    A script has none of these: its number of tasks is the job's.
    """
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
    """Return the variables naming the step and the user.

    A script has no step's number: programs that find one take themselves for tasks of srun's, and Open MPI then aborts.
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
    """Return the variables set by Slurm's stepd for every task, overriding hooks."""
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
    """Return the variables naming the task; in the hooks at the task's end the step has these, too."""
    return {"SLURM_PROCID": str(task.global_id), "SLURM_LOCALID": str(task.local_id)}


def for_tasks(step: "Step") -> dict[str, str]:
    """Return the environment of all tasks: the step's variables, without any too long for a program."""
    given = step.environment
    if max(map(len, given), default=0) + max(map(len, given.values()), default=0) < _SHORT:
        return given.copy()
    return {name: value for name, value in given.items() if len(name) + len(value) < _SHORT or _fits(name, value)}


def for_task(step: "Step", task: "Task", common: "Mapping[str, str]") -> dict[str, str]:
    """Return the environment of a task, from the common variables. The task itself adds SLURM_TASK_PID."""
    environment = {**common, **of_rank(task)}
    if step.task_variables:
        environment.update(step.task_variables[task.local_id])
    return environment


def _fits(name: str, value: str) -> bool:
    return len(f"{name}={value}".encode("utf-8", "surrogateescape")) < LONGEST
