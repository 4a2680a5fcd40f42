"""SPANK for plugins written in Python: the documented names, typed.

A plugin is a file whose module-level functions are its hooks, each `hook(sp, ac, argv) -> int` as in C. A hook returns
0 (or None), or any other number for failure; an uncaught exception counts as failure too.
Where C fills in a pointer and returns a spank_err_t, Python returns the value and raises SpankError.

    from nodectl.spank import S_TASK_PID, Spank, slurm_info, spank_get_item

    plugin_type = "spank"
    plugin_name = "hello"
    plugin_version = (22, 5, 8)

    def slurm_spank_task_post_fork(sp: Spank, ac: int, argv: list[str]) -> int:
        slurm_info(f"hello, pid {spank_get_item(sp, S_TASK_PID)}")
        return 0

Runs in each process that calls hooks: the command as its user; the daemon's processes for jobs and for the slurmd
context, a stepd and its tasks as root or as the user. The folder also holds the modules that read plugstack.conf, load
plugins and call their hooks; it imports plugin_host and the packages below it.

Sources: the SPANK manual for names, today's Slurm for numbers, contexts and error codes.
"""

from nodectl import messages
from nodectl.spank.spank_h import *  # noqa: F403  # all that spank.h defines
from nodectl.spank.spank_h import ESPANK_BAD_ARG, ESPANK_ENV_EXISTS, ESPANK_ENV_NOEXIST, S_CTX_REMOTE, SpankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nodectl.spank.handle import Spank
    from nodectl.spank.spank_h import SpankOption


def _known(sp: "Spank | None") -> "Spank":
    """Return the handle. Raises SpankError(ESPANK_BAD_ARG) for None, as C does for NULL."""
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
    from nodectl.spank.handle import current_context  # a process that loads plugins has imported it

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
    from nodectl.plugin_host.kinds import KINDS  # not needed by most plugins

    return -1 if name is None else int(name in KINDS["spank"].functions)


def slurm_load_job(sp: "Spank", job_id: int, show_flags: int = 0) -> dict[str, object]:
    """The members of Slurm's struct job_info by name, of a job of this node; what is not among them is NULL or 0.

    Any process, any hook; the command, and what runs as the user, know their own job only. Raises SpankError:
    ESLURM_INVALID_JOB_ID for a job that is not here. The flags change nothing. Source: Slurm's headers.
    """
    from nodectl.spank.job_info import members  # not needed by most plugins

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
