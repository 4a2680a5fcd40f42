"""SPANK for plugins written in Python: the documented names, typed.

A plugin is a file whose module-level functions are its hooks, each `hook(sp, ac, argv) -> int` as in C. It returns 0
(or None), or any other number for failure; an exception that it lets out counts as failure too.
Where C fills in a pointer and returns a spank_err_t, Python returns the value and raises SpankError.

    from nodectl.spank import S_TASK_PID, Spank, slurm_info, spank_get_item

    plugin_type = "spank"
    plugin_name = "hello"
    plugin_version = (22, 5, 8)

    def slurm_spank_task_post_fork(sp: Spank, ac: int, argv: list[str]) -> int:
        slurm_info(f"hello, pid {spank_get_item(sp, S_TASK_PID)}")
        return 0

Sources: the SPANK manual for names, today's Slurm for numbers, contexts and error codes.
"""

from nodectl import messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nodectl.spank.handle import Spank

SLURM_VERSION = (22, 5, 8)

# spank_context()
S_CTX_ERROR, S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_ALLOCATOR, S_CTX_SLURMD, S_CTX_JOB_SCRIPT = range(6)

# spank_get_item()
(
    S_JOB_UID, S_JOB_GID, S_JOB_ID, S_JOB_STEPID, S_JOB_NNODES, S_JOB_NODEID, S_JOB_LOCAL_TASK_COUNT,
    S_JOB_TOTAL_TASK_COUNT, S_JOB_NCPUS, S_JOB_ARGV, S_JOB_ENV, S_TASK_ID, S_TASK_GLOBAL_ID, S_TASK_EXIT_STATUS,
    S_TASK_PID, S_JOB_PID_TO_GLOBAL_ID, S_JOB_PID_TO_LOCAL_ID, S_JOB_LOCAL_TO_GLOBAL_ID, S_JOB_GLOBAL_TO_LOCAL_ID,
    S_JOB_SUPPLEMENTARY_GIDS, S_SLURM_VERSION,
    S_SLURM_VERSION_MAJOR, S_SLURM_VERSION_MINOR, S_SLURM_VERSION_MICRO, S_STEP_CPUS_PER_TASK, S_JOB_ALLOC_CORES,
    S_JOB_ALLOC_MEM, S_STEP_ALLOC_CORES, S_STEP_ALLOC_MEM, S_SLURM_RESTART_COUNT, S_JOB_ARRAY_ID, S_JOB_ARRAY_TASK_ID,
) = range(32)  # fmt: skip

ESPANK_SUCCESS = 0
(
    ESPANK_ERROR, ESPANK_BAD_ARG, ESPANK_NOT_TASK, ESPANK_ENV_EXISTS, ESPANK_ENV_NOEXIST, ESPANK_NOSPACE,
    ESPANK_NOT_REMOTE, ESPANK_NOEXIST, ESPANK_NOT_EXECD, ESPANK_NOT_AVAIL, ESPANK_NOT_LOCAL, ESPANK_NODE_FAILURE,
    ESPANK_JOB_FAILURE,
) = range(3000, 3013)  # fmt: skip

# Where a recording of Slurm shows the words that a plugin sees, they are those.
_ERRORS = {
    ESPANK_SUCCESS: "No error",
    ESPANK_ERROR: "Failed",
    ESPANK_BAD_ARG: "Bad argument",
    ESPANK_NOT_TASK: "Valid only in a hook of a task",
    ESPANK_ENV_EXISTS: "Environment variable exists",
    ESPANK_ENV_NOEXIST: "No such environment variable",
    ESPANK_NOSPACE: "Buffer too small",
    ESPANK_NOT_REMOTE: "Valid only in remote context",
    ESPANK_NOEXIST: "No such id or pid on this node",
    ESPANK_NOT_EXECD: "No task exists yet",
    ESPANK_NOT_AVAIL: "Not available in this hook",
    ESPANK_NOT_LOCAL: "Valid only in local or allocator context",
    ESPANK_NODE_FAILURE: "Failure of the node",
    ESPANK_JOB_FAILURE: "Failure of the job",
}

ESLURM_INVALID_JOB_ID = 2017
_ERRORS[ESLURM_INVALID_JOB_ID] = "No such job on this node"

SPANK_OPTION_MAXLEN = 75


class SpankError(Exception):
    """A SPANK call failed; `code` is one of ESPANK_*."""

    def __init__(self, code: int, what: str = "") -> None:
        super().__init__(f"{what}: {spank_strerror(code)}" if what else spank_strerror(code))
        self.code = code


class SpankOption:
    """The documents' struct spank_option. `has_arg`: 0 none, 1 required, 2 optional.

    `cb(val, optarg, remote) -> int`: in the command (remote 0), as the user, while it reads its options: anything but
    0 refuses the command. In the stepd (remote 1), as root, after init: a failure is logged. `optarg` is None where no
    argument was given, in the stepd "". A plugin's module-level list `spank_options` holds such objects.
    """

    __slots__ = ("arginfo", "cb", "has_arg", "name", "usage", "val")

    def __init__(
        self,
        name: str,
        arginfo: "str | None",
        usage: str,
        has_arg: int,
        val: int,
        cb: "Callable[[int, str | None, int], int | None] | None",
    ) -> None:
        self.name = name
        self.arginfo = arginfo
        self.usage = usage
        self.has_arg = has_arg
        self.val = val
        self.cb = cb


def spank_strerror(code: int) -> str:
    """The meaning of an ESPANK_* number, one line. Any process, any hook; raises nothing.

    Words: the recordings' where a plugin sees them there, nodectl's own elsewhere.
    """
    return _ERRORS.get(code, f"Unknown error {code}")


def _known(sp: "Spank | None") -> "Spank":
    """The handle. Raises SpankError(ESPANK_BAD_ARG) where there is none, as C does for NULL."""
    if sp is None:
        raise SpankError(ESPANK_BAD_ARG, "no handle")
    return sp


def spank_get_item(sp: "Spank", item: int, argument: "int | None" = None) -> object:
    """The value of an S_* item; `argument` is the pid or id for the four items that translate one.

    int for ids, counts and MB; list[str] for S_JOB_ARGV, list[int] for S_JOB_SUPPLEMENTARY_GIDS, the live dict for
    S_JOB_ENV (None in the command), str for versions and core lists. Changing a list changes nothing in the step.

    Stepd and tasks, as root or the user: every item; S_TASK_* only in hooks of a task (ESPANK_NOT_TASK elsewhere),
    S_TASK_EXIT_STATUS only in task_exit, pids only from task_post_fork on (ESPANK_NOT_EXECD). Command: S_JOB_UID,
    _GID, _ID, _STEPID, _NNODES, _TOTAL_TASK_COUNT, _ARGV, _ENV in local_user_init (ESPANK_NOT_AVAIL elsewhere), no
    others (ESPANK_NOT_REMOTE). job_prolog and job_epilog: S_JOB_UID, _GID, _ID. The daemon: none. Versions: anywhere.
    Raises SpankError, ESPANK_BAD_ARG for what is no item. Source: today's Slurm, and the recordings for array ids.
    """
    return _known(sp).get_item(item, argument)


def spank_getenv(sp: "Spank", var: str) -> str:
    """The value of a variable of the job's environment.

    Stepd and tasks only, as root or the user. Raises SpankError: ESPANK_NOT_REMOTE elsewhere, ESPANK_ENV_NOEXIST,
    ESPANK_BAD_ARG without a name. Source: the manual, today's Slurm.
    """
    return _value(_known(sp).job_environment(), var)


def spank_setenv(sp: "Spank", var: str, val: str, overwrite: int = 1) -> None:
    """Sets a variable of the job's environment: before the fork for every task, in a task's own hooks for that task.

    Stepd and tasks only, as root or the user; from task_post_fork on the stepd's changes reach only task epilogs.
    Raises SpankError: ESPANK_NOT_REMOTE elsewhere, ESPANK_ENV_EXISTS without `overwrite`, ESPANK_BAD_ARG for what can
    be no variable. Source: the manual, today's Slurm.
    """
    environment = _known(sp).job_environment()
    _check_variable(var, val)
    if not overwrite and var in environment:
        raise SpankError(ESPANK_ENV_EXISTS, var)
    environment[var] = val


def spank_unsetenv(sp: "Spank", var: str) -> None:
    """Removes a variable of the job's environment; an absent one is success.

    Process, identity and errors: as spank_setenv.
    """
    environment = _known(sp).job_environment()
    _check_variable(var, "")
    environment.pop(var, None)


def spank_job_control_getenv(sp: "Spank", var: str) -> str:
    """The value of a variable of the job-control environment, under the name it was set by.

    Command only (local and allocator context), as the user. Raises SpankError: ESPANK_NOT_LOCAL in stepd and tasks,
    ESPANK_NOT_AVAIL in the daemon, ESPANK_ENV_NOEXIST, in job_prolog and job_epilog always. Source: the manual,
    today's Slurm.
    """
    return _value(_known(sp).job_control_environment(), var)


def spank_job_control_setenv(sp: "Spank", var: str, val: str, overwrite: int = 1) -> None:
    """Sets a variable for the job's Prolog and Epilog, which see it as SPANK_<var>, and for job_prolog and job_epilog.

    Command only (local and allocator context), as the user. Without `overwrite` a variable that exists stays as it is,
    which is success. Raises SpankError: ESPANK_NOT_LOCAL in stepd and tasks, ESPANK_NOT_AVAIL in the daemon,
    ESPANK_BAD_ARG in job_prolog and job_epilog and for what can be no variable. Source: the manual, the recordings.
    """
    environment = _known(sp).job_control_environment(change=True)
    _check_variable(var, val)
    if overwrite or var not in environment:
        environment[var] = val


def spank_job_control_unsetenv(sp: "Spank", var: str) -> None:
    """Removes a variable of the job-control environment; an absent one is success.

    Process, identity and errors: as spank_job_control_setenv.
    """
    environment = _known(sp).job_control_environment(change=True)
    _check_variable(var, "")
    environment.pop(var, None)


def _value(environment: "Mapping[str, str]", var: str) -> str:
    if not var:
        raise SpankError(ESPANK_BAD_ARG, "no name")
    if var not in environment:
        raise SpankError(ESPANK_ENV_NOEXIST, var)
    return environment[var]


def _check_variable(var: object, val: object) -> None:
    if not isinstance(var, str) or not isinstance(val, str) or not var or "=" in var or "\0" in var + val:
        raise SpankError(ESPANK_BAD_ARG, repr(var))


def spank_prepend_task_argv(sp: "Spank", argc: int, argv: "Sequence[str] | None") -> None:
    """Puts the first `argc` words of `argv` in front of this task's program and arguments.

    Only in task_init_privileged (root) and task_init (user), for that task alone. Raises SpankError:
    ESPANK_NOT_REMOTE outside the remote context, ESPANK_NOT_TASK in its other hooks, ESPANK_BAD_ARG for what are no
    words. Source: today's Slurm.
    """
    _known(sp).prepend_argv(argc, argv)


def spank_context() -> int:
    """The S_CTX_* this process loaded its plugins in, S_CTX_ERROR without any. Any process; raises nothing."""
    from nodectl.spank.handle import current_context  # handle imports the names above

    return current_context()


def spank_remote(sp: "Spank | None") -> int:
    """1 in the stepd and its tasks, 0 in other contexts, -1 without a handle. Raises nothing."""
    return -1 if sp is None else int(sp.context == S_CTX_REMOTE)


def spank_option_register(sp: "Spank", option: "SpankOption | None") -> None:
    """Offers an option to the command's users, as an entry of the table `spank_options` does.

    Only in slurm_spank_init, in any process. Raises SpankError: ESPANK_BAD_ARG elsewhere and without name or usage,
    ESPANK_NOSPACE for a name above SPANK_OPTION_MAXLEN. A name that this plugin has offered already stays the first's.
    Source: the manual, today's Slurm.
    """
    _known(sp).register(option)


def spank_option_getopt(sp: "Spank", option: "SpankOption | None") -> "str | None":
    """The argument that the user gave to an option of this plugin; without one None in the command, "" elsewhere.

    In local_user_init, user_init, task_init_privileged, task_init, task_exit, job_prolog and job_epilog. Raises
    SpankError: ESPANK_NOT_AVAIL in other hooks, ESPANK_BAD_ARG without an option, ESPANK_ERROR for one that was not
    given. Source: today's Slurm.
    """
    return _known(sp).getopt(option)


def spank_symbol_supported(name: "str | None") -> int:
    """1 when nodectl knows a hook of this name, 0 otherwise, -1 for None. Any process; raises nothing."""
    from nodectl.model.launch_order import functions  # not needed by most plugins

    return -1 if name is None else int(name in functions("spank"))


def slurm_load_job(sp: "Spank", job_id: int, show_flags: int = 0) -> dict[str, object]:
    """The members of Slurm's struct job_info by name, of a job of this node; what is not among them is NULL or 0.

    Any process, any hook; the command, and what runs as the user, know their own job only. Raises SpankError:
    ESLURM_INVALID_JOB_ID for a job that is not here. The flags change nothing. Source: Slurm's headers.
    """
    from nodectl.spank.job_info import members  # it imports the names above

    return {**members(_known(sp), job_id), "show_flags": show_flags}


slurm_error = messages.error
slurm_info = messages.info
slurm_verbose = messages.verbose
slurm_debug = messages.debug
slurm_debug2 = messages.debug2
slurm_debug3 = messages.debug3


def slurm_spank_log(text: str) -> None:
    """A line for the user as it is, at any verbosity. Any process, any identity; raises nothing."""
    messages.say(messages.PLAIN, text)
