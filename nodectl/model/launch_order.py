"""The order of a launch: a table for the calls, the manual and the check of a trace.

A row is a place in the launch: a plugin hook or a step of nodectl's own. Rows stand in the order in which they happen.
`process` and `identity` say where and as whom; `per` how often; `costs` what a failure costs. Where two rows run in
different processes only the barriers order them: no `task_post_fork` before the last `fork`, no row after the `gate` in
any task before the last `task_post_fork` has returned.

Source of names and signatures: the Slurm plugin API documents; of order and cost: today's Slurm on one node, with the
differences that docs/differences-from-slurm.md lists.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Hook:
    """A row. `arity` is the number of parameters of a plugin's function (0 for rows without a plugin hook)."""

    __slots__ = ("arity", "call", "costs", "facts", "identity", "kind", "per", "process")

    def __init__(self, call: str, kind: str, process: str, identity: str, per: str, arity: int, costs: str) -> None:
        self.call = call
        self.kind = kind
        self.process = process
        self.identity = identity
        self.per = per
        self.arity = arity
        self.costs = costs
        self.facts = f'"call":"{call}","kind":"{kind}"'  # in the form of a line of the trace


_STEP_ENDS = "the step fails, exit status 1"
_TASK_ENDS = "this task ends with status 1, the others go on"
_ENDS_ALL = "the step is ended, exit status 1; of a bulk step this command alone"
_LOGGED = "logged, nothing else"
_COUNTS = "becomes the task's status where that was 0"
_REFUSED = "the job is refused, exit status 1; its epilog runs"
_NOTED = "logged, and a note in the step's record"

HOOKS = (
    # Binding is computed here: a bad mask is refused before any process exists.
    Hook("task_p_slurmd_launch_request", "task", "daemon", "root", "step", 2, "the request is refused"),
    Hook("mpi_p_client_prelaunch", "mpi", "daemon", "root", "step", 1, "the request is refused"),
    # At the job's first step. From here on task_p_slurmd_release_resources is called at the end, also after a failure.
    Hook("task_p_slurmd_reserve_resources", "task", "daemon", "root", "job", 2, "the request is refused"),
    Hook("prolog_slurmctld", "step", "daemon", "root", "job", 0, _REFUSED),
    # Executed for the job, before its step: nothing of these processes is shared with the daemon or with the step.
    Hook("slurm_spank_job_prolog", "spank", "job script", "root", "job", 3, _REFUSED),
    Hook("prolog", "step", "daemon", "root", "job", 0, _REFUSED),
    Hook("container_p_create", "job_container", "stepd", "root", "job", 1, _STEP_ENDS),
    Hook("proctrack_p_create", "proctrack", "stepd", "root", "step", 1, _STEP_ENDS),
    Hook("container_p_add_cont", "job_container", "stepd", "root", "step", 2, _STEP_ENDS),
    Hook("slurm_spank_init", "spank", "stepd", "root", "step", 3, _STEP_ENDS),
    Hook("option", "spank", "stepd", "root", "option", 3, _STEP_ENDS),
    Hook("slurm_spank_init_post_opt", "spank", "stepd", "root", "step", 3, _STEP_ENDS),
    Hook("task_p_pre_setuid", "task", "stepd", "root", "step", 1, _STEP_ENDS),
    # A reversible drop: effective user and groups, regained when the last plugin has returned; so is task_p_post_term.
    Hook("slurm_spank_user_init", "spank", "stepd", "effective user", "step", 3, _STEP_ENDS),
    # Of a step with --mpi: the plugin's server; then, for each task, the variables that lead to the server.
    Hook("mpi_p_slurmstepd_prefork", "mpi", "stepd", "root", "step", 1, _STEP_ENDS),
    Hook("mpi_p_slurmstepd_task", "mpi", "stepd", "root", "task", 2, _STEP_ENDS),
    Hook("fork", "step", "stepd", "root", "task", 0, _STEP_ENDS),
    Hook("proctrack_p_add", "proctrack", "stepd", "root", "task", 2, _STEP_ENDS),
    # In the task, because binding must follow the task's arrival in its cgroup: a move resets the affinity.
    Hook("task_p_pre_launch_priv", "task", "task", "root", "task", 1, _TASK_ENDS),
    # A task is one thread, as setns(2) requires; from here on it is in the container.
    Hook("container_p_add_pid", "job_container", "task", "root", "task", 3, _TASK_ENDS),
    Hook("slurm_spank_task_init_privileged", "spank", "task", "root", "task", 3, _ENDS_ALL),
    Hook("become_user", "step", "task", "user", "task", 0, _TASK_ENDS),
    Hook("gate", "step", "task", "user", "task", 0, _TASK_ENDS),
    # After *all* forks: no user code has run yet.
    Hook("slurm_spank_task_post_fork", "spank", "stepd", "root", "task", 3, _STEP_ENDS),
    Hook("open_gate", "step", "stepd", "root", "step", 0, _STEP_ENDS),
    # For a step with a level of confinement: before any program or hook that runs as the user.
    Hook("confine", "step", "task", "user", "task", 0, _TASK_ENDS),
    Hook("task_p_pre_launch", "task", "task", "user", "task", 1, _TASK_ENDS),
    Hook("slurm_spank_task_init", "spank", "task", "user", "task", 3, _ENDS_ALL),
    Hook("task_prolog", "step", "task", "user", "script", 0, "this task ends with the script's status"),
    Hook("exec", "step", "task", "user", "task", 0, "this task ends with the errno as its status"),
    # The task has ended: its scripts run, each in a child of the stepd that has become the user, beside other tasks'.
    Hook("task_epilog", "step", "stepd", "root", "script", 0, _LOGGED),
    Hook("slurm_spank_task_exit", "spank", "stepd", "root", "task", 3, _COUNTS),
    Hook("task_p_post_term", "task", "stepd", "effective user", "task", 2, _COUNTS),
    # All tasks have ended; the stepd tells the server to end, and waits for the end.
    Hook("mpi_p_client_fini", "mpi", "stepd", "root", "step", 1, _LOGGED),
    Hook("proctrack_p_signal", "proctrack", "stepd", "root", "step", 2, "tried again until the step is empty"),
    Hook("proctrack_p_wait", "proctrack", "stepd", "root", "step", 1, "reported as unkillable"),
    Hook("task_p_post_step", "task", "stepd", "root", "step", 1, _LOGGED),
    Hook("slurm_spank_exit", "spank", "stepd", "root", "step", 3, "the step counts as failed, exit status 1"),
    Hook("proctrack_p_destroy", "proctrack", "stepd", "root", "step", 1, _LOGGED),
    # The step is over, its client may have gone; also after a prolog that failed.
    Hook("slurm_spank_job_epilog", "spank", "job script", "root", "job", 3, _NOTED),
    Hook("epilog", "step", "daemon", "root", "job", 0, _NOTED),
    Hook("epilog_slurmctld", "step", "daemon", "root", "job", 0, _NOTED),
    # Also after a step that never got as far as container_p_create, and again where it was interrupted.
    Hook("container_p_delete", "job_container", "container", "root", "job", 1, _NOTED),
    # The last row of a job, called by whichever daemon then runs.
    Hook("task_p_slurmd_release_resources", "task", "daemon", "root", "job", 1, _NOTED),
)

# Of the step that runs a job's script, in the place of task_p_slurmd_launch_request.
BATCH_HOOKS = (
    Hook("task_p_slurmd_batch_request", "task", "daemon", "root", "job", 1, "the job waits, and is tried again"),
)

# Of a job after the suspension of all its steps, and before the first step is resumed.
SUSPENSION_HOOKS = (
    Hook("task_p_slurmd_suspend_job", "task", "daemon", "root", "job", 1, "the steps go on, the command fails"),
    Hook("task_p_slurmd_resume_job", "task", "daemon", "root", "job", 1, "the step stays suspended"),
)

# Functions of the documents, and nodectl's own, called on other occasions than a row of the launch.
OCCASIONS: "Mapping[str, str]" = {
    "task_p_pre_launch_priv_plan": "in the stepd as root, for each task, instead of task_p_pre_launch_priv",
    "task_p_pre_launch_plan": "in the stepd as root, for each task, instead of task_p_pre_launch",
    "container_p_add_pid_plan": "in the stepd as root, for each task, instead of container_p_add_pid",
    "container_p_reconfig": "in the forkserver as root, at each reload of the configuration",
    "container_p_restore": "in a process of its own as root, after each start of the service",
}

# A plugin's body, constructors or init(), before its hooks, for messages about where a process died.
LOADING = Hook("loading", "spank", "any", "as its hooks", "process", 0, "as slurm_spank_init")

ROWS: "Mapping[str, Hook]" = {hook.call: hook for hook in (*HOOKS, *BATCH_HOOKS, *SUSPENSION_HOOKS)}

# SPANK hooks of the command that the user runs (local context), in its process, as the user.
LOCAL_HOOKS = ("slurm_spank_init", "slurm_spank_init_post_opt", "slurm_spank_local_user_init", "slurm_spank_exit")

# SPANK hooks of the step that holds the job of `nodectl alloc`, whose only task is not the user's: options are not
# passed there. An image that a plugin imports, say, is imported by the steps of the job.
EXTERN_HOOKS = frozenset(
    {"slurm_spank_init", "slurm_spank_init_post_opt", "slurm_spank_task_post_fork", "slurm_spank_exit"}
)

# SPANK hooks of the daemon's own life (slurmd context), in a process of its own, as root. A plugin's slurmd_init is
# called as its init, where it has none.
SLURMD_HOOKS = ("slurm_spank_init", "slurm_spank_slurmd_init", "slurm_spank_slurmd_exit")
