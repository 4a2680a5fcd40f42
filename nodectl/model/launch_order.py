"""The order of a launch: a table for the calls, the manual and the check of a trace.

A row is a place in the launch: a plugin hook or a step of nodectl's own. Rows stand in the order in which they happen.
`process` and `identity` say where and as whom; `per` how often; `costs` what a failure costs. Where two rows run in
different processes only the barriers order them: no `task_post_fork` before the last `fork`, no row after the `gate` in
any task before the last `task_post_fork` has returned.

The code calls a row by its name here, which is the call's name in capitals, without `slurm_` and `_p`:
`run.call(launch_order.SPANK_TASK_EXIT, task)`. So a call takes its process, its identity and the cost of its failure
from the row. `Recorder.begin` refuses a call in another process.

Source of names and signatures: the Slurm plugin API documents; of order and cost: today's Slurm on one node, with the
differences that docs/differences-from-slurm.md lists.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SPANK_PREFIX = "slurm_spank_"


class Hook:
    """A row. `arity` is the number of parameters of a plugin's function (0 for rows without a plugin hook).

    `plan` is the name of the function that a task plugin or a container plugin may have instead: it returns operations.
    """

    __slots__ = ("arity", "call", "costs", "facts", "identity", "kind", "per", "plan", "process")

    def __init__(self, call: str, kind: str, process: str, identity: str, per: str, arity: int, costs: str) -> None:
        self.call = call
        self.plan = f"{call}_plan"
        self.kind = kind
        self.process = process
        self.identity = identity
        self.per = per
        self.arity = arity
        self.costs = costs
        self.facts = f'"call":"{call}","kind":"{kind}"'  # in the form of a line of the trace


_launch: "list[Hook]" = []


def _row(call: str, kind: str, process: str, identity: str, per: str, arity: int, costs: str) -> Hook:
    """Add the next row of the launch."""
    _launch.append(Hook(call, kind, process, identity, per, arity, costs))
    return _launch[-1]


EFFECTIVE_USER = "effective user"
STEP_ENDS = "the step fails, exit status 1"
TASK_COUNTS = "becomes the task's status where that was 0"
_TASK_ENDS = "this task ends with status 1, the others go on"
_ENDS_ALL = "the step is ended, exit status 1; of a bulk step this command alone"
_LOGGED = "logged, nothing else"
_REPEATED = "tried again until the step is empty"
_REFUSED = "the request is refused"
_JOB_REFUSED = "the job is refused, exit status 1; its epilog runs"
_NOTED = "logged, and a note in the step's record"
_COMMAND_FAILS = "the command fails, exit status 1"
_NO_SERVICE = "the service does not start"

# Binding is computed here: a bad mask is refused before any process exists.
TASK_SLURMD_LAUNCH_REQUEST = _row("task_p_slurmd_launch_request", "task", "daemon", "root", "step", 2, _REFUSED)
MPI_CLIENT_PRELAUNCH = _row("mpi_p_client_prelaunch", "mpi", "daemon", "root", "step", 1, _REFUSED)
# At the job's first step. From here on task_p_slurmd_release_resources is called at the end, also after a failure.
TASK_SLURMD_RESERVE_RESOURCES = _row("task_p_slurmd_reserve_resources", "task", "daemon", "root", "job", 2, _REFUSED)
PROLOG_SLURMCTLD = _row("prolog_slurmctld", "step", "daemon", "root", "job", 0, _JOB_REFUSED)
# Executed for the job, before its step: nothing of these processes is shared with the daemon or with the step.
SPANK_JOB_PROLOG = _row("slurm_spank_job_prolog", "spank", "job script", "root", "job", 3, _JOB_REFUSED)
PROLOG = _row("prolog", "step", "daemon", "root", "job", 0, _JOB_REFUSED)
CONTAINER_CREATE = _row("container_p_create", "job_container", "stepd", "root", "job", 1, STEP_ENDS)
PROCTRACK_CREATE = _row("proctrack_p_create", "proctrack", "stepd", "root", "step", 1, STEP_ENDS)
CONTAINER_ADD_CONT = _row("container_p_add_cont", "job_container", "stepd", "root", "step", 2, STEP_ENDS)
SPANK_INIT = _row("slurm_spank_init", "spank", "stepd", "root", "step", 3, STEP_ENDS)
OPTION = _row("option", "spank", "stepd", "root", "option", 3, STEP_ENDS)
SPANK_INIT_POST_OPT = _row("slurm_spank_init_post_opt", "spank", "stepd", "root", "step", 3, STEP_ENDS)
TASK_PRE_SETUID = _row("task_p_pre_setuid", "task", "stepd", "root", "step", 1, STEP_ENDS)
# A reversible drop: effective user and groups, regained when the last plugin has returned; so is task_p_post_term.
SPANK_USER_INIT = _row("slurm_spank_user_init", "spank", "stepd", EFFECTIVE_USER, "step", 3, STEP_ENDS)
# Of a step with --mpi: the plugin's server; then, for each task, the variables that lead to the server.
MPI_SLURMSTEPD_PREFORK = _row("mpi_p_slurmstepd_prefork", "mpi", "stepd", "root", "step", 1, STEP_ENDS)
MPI_SLURMSTEPD_TASK = _row("mpi_p_slurmstepd_task", "mpi", "stepd", "root", "task", 2, STEP_ENDS)
FORK = _row("fork", "step", "stepd", "root", "task", 0, STEP_ENDS)
PROCTRACK_ADD = _row("proctrack_p_add", "proctrack", "stepd", "root", "task", 2, STEP_ENDS)
# In the task, because binding must follow the task's arrival in its cgroup: a move resets the affinity.
TASK_PRE_LAUNCH_PRIV = _row("task_p_pre_launch_priv", "task", "task", "root", "task", 1, _TASK_ENDS)
# A task is one thread, as setns(2) requires; from here on it is in the container.
CONTAINER_ADD_PID = _row("container_p_add_pid", "job_container", "task", "root", "task", 3, _TASK_ENDS)
SPANK_TASK_INIT_PRIVILEGED = _row("slurm_spank_task_init_privileged", "spank", "task", "root", "task", 3, _ENDS_ALL)
BECOME_USER = _row("become_user", "step", "task", "user", "task", 0, _TASK_ENDS)
GATE = _row("gate", "step", "task", "user", "task", 0, _TASK_ENDS)
# After *all* forks: no user code has run yet.
SPANK_TASK_POST_FORK = _row("slurm_spank_task_post_fork", "spank", "stepd", "root", "task", 3, STEP_ENDS)
OPEN_GATE = _row("open_gate", "step", "stepd", "root", "step", 0, STEP_ENDS)
# For a step with a level of confinement: before any program or hook that runs as the user.
CONFINE = _row("confine", "step", "task", "user", "task", 0, _TASK_ENDS)
TASK_PRE_LAUNCH = _row("task_p_pre_launch", "task", "task", "user", "task", 1, _TASK_ENDS)
SPANK_TASK_INIT = _row("slurm_spank_task_init", "spank", "task", "user", "task", 3, _ENDS_ALL)
TASK_PROLOG = _row("task_prolog", "step", "task", "user", "script", 0, "this task ends with the script's status")
EXEC = _row("exec", "step", "task", "user", "task", 0, "this task ends with the errno as its status")
# The task has ended: its scripts run, each in a child of the stepd that has become the user, beside other tasks'.
TASK_EPILOG = _row("task_epilog", "step", "stepd", "root", "script", 0, _LOGGED)
SPANK_TASK_EXIT = _row("slurm_spank_task_exit", "spank", "stepd", "root", "task", 3, TASK_COUNTS)
TASK_POST_TERM = _row("task_p_post_term", "task", "stepd", EFFECTIVE_USER, "task", 2, TASK_COUNTS)
# All tasks have ended; the stepd tells the server to end, and waits for the end.
MPI_CLIENT_FINI = _row("mpi_p_client_fini", "mpi", "stepd", "root", "step", 1, _LOGGED)
PROCTRACK_SIGNAL = _row("proctrack_p_signal", "proctrack", "stepd", "root", "step", 2, _REPEATED)
PROCTRACK_WAIT = _row("proctrack_p_wait", "proctrack", "stepd", "root", "step", 1, "reported as unkillable")
TASK_POST_STEP = _row("task_p_post_step", "task", "stepd", "root", "step", 1, _LOGGED)
SPANK_EXIT = _row("slurm_spank_exit", "spank", "stepd", "root", "step", 3, "the step counts as failed, exit status 1")
PROCTRACK_DESTROY = _row("proctrack_p_destroy", "proctrack", "stepd", "root", "step", 1, _LOGGED)
# The step is over, its client may have gone; also after a prolog that failed.
SPANK_JOB_EPILOG = _row("slurm_spank_job_epilog", "spank", "job script", "root", "job", 3, _NOTED)
EPILOG = _row("epilog", "step", "daemon", "root", "job", 0, _NOTED)
EPILOG_SLURMCTLD = _row("epilog_slurmctld", "step", "daemon", "root", "job", 0, _NOTED)
# Also after a step that never got as far as container_p_create, and again where it was interrupted.
CONTAINER_DELETE = _row("container_p_delete", "job_container", "container", "root", "job", 1, _NOTED)
# The last row of a job, called by whichever daemon then runs.
TASK_SLURMD_RELEASE_RESOURCES = _row("task_p_slurmd_release_resources", "task", "daemon", "root", "job", 1, _NOTED)

HOOKS = tuple(_launch)

# Of the step that runs a job's script, in the place of task_p_slurmd_launch_request.
TASK_SLURMD_BATCH_REQUEST = Hook(
    "task_p_slurmd_batch_request", "task", "daemon", "root", "job", 1, "the job waits, and is tried again"
)
BATCH_HOOKS = (TASK_SLURMD_BATCH_REQUEST,)

# Of a job after the suspension of all its steps, and before the first step is resumed.
TASK_SLURMD_SUSPEND_JOB = Hook(
    "task_p_slurmd_suspend_job", "task", "daemon", "root", "job", 1, "the steps go on, the command fails"
)
TASK_SLURMD_RESUME_JOB = Hook(
    "task_p_slurmd_resume_job", "task", "daemon", "root", "job", 1, "the step stays suspended"
)
SUSPENSION_HOOKS = (TASK_SLURMD_SUSPEND_JOB, TASK_SLURMD_RESUME_JOB)

# Functions of the documents, and nodectl's own, called on other occasions than a row of the launch.
CONTAINER_RECONFIG, CONTAINER_RESTORE = "container_p_reconfig", "container_p_restore"
OCCASIONS: "Mapping[str, str]" = {
    TASK_PRE_LAUNCH_PRIV.plan: "in the stepd as root, for each task, instead of task_p_pre_launch_priv",
    TASK_PRE_LAUNCH.plan: "in the stepd as root, for each task, instead of task_p_pre_launch",
    CONTAINER_ADD_PID.plan: "in the stepd as root, for each task, instead of container_p_add_pid",
    CONTAINER_RECONFIG: "in the forkserver as root, at each reload of the configuration",
    CONTAINER_RESTORE: "in a process of its own as root, after each start of the service",
}

# A plugin's body, constructors or init(), before its hooks, for messages about where a process died.
LOADING = Hook("loading", "spank", "any", "as its hooks", "process", 0, "as slurm_spank_init")

ROWS: "Mapping[str, Hook]" = {hook.call: hook for hook in (*HOOKS, *BATCH_HOOKS, *SUSPENSION_HOOKS)}

# SPANK hooks of the command that the user runs (local context), in its process, as the user.
LOCAL_SPANK_INIT = Hook("slurm_spank_init", "spank", "command", "user", "step", 3, _COMMAND_FAILS)
LOCAL_OPTION = Hook("option", "spank", "command", "user", "option", 3, "the command refuses the option")
LOCAL_SPANK_INIT_POST_OPT = Hook("slurm_spank_init_post_opt", "spank", "command", "user", "step", 3, _COMMAND_FAILS)
SPANK_LOCAL_USER_INIT = Hook("slurm_spank_local_user_init", "spank", "command", "user", "step", 3, _COMMAND_FAILS)
LOCAL_SPANK_EXIT = Hook("slurm_spank_exit", "spank", "command", "user", "step", 3, "told, nothing else")
LOCAL_HOOKS = (LOCAL_SPANK_INIT, LOCAL_SPANK_INIT_POST_OPT, SPANK_LOCAL_USER_INIT, LOCAL_SPANK_EXIT)

# SPANK hooks of the step that holds the job of `nodectl alloc`, whose only task is not the user's: options are not
# passed there. An image that a plugin imports, say, is imported by the steps of the job.
EXTERN_HOOKS = frozenset({SPANK_INIT, SPANK_INIT_POST_OPT, SPANK_TASK_POST_FORK, SPANK_EXIT})

# SPANK hooks of the daemon's own life (slurmd context), in a process of its own, as root. A plugin's slurmd_init is
# called as its init, where it has none.
SLURMD_SPANK_INIT = Hook("slurm_spank_init", "spank", "slurmd", "root", "daemon", 3, _NO_SERVICE)
SPANK_SLURMD_INIT = Hook("slurm_spank_slurmd_init", "spank", "slurmd", "root", "daemon", 3, _NO_SERVICE)
SPANK_SLURMD_EXIT = Hook("slurm_spank_slurmd_exit", "spank", "slurmd", "root", "daemon", 3, _LOGGED)
SLURMD_HOOKS = (SLURMD_SPANK_INIT, SPANK_SLURMD_INIT, SPANK_SLURMD_EXIT)
