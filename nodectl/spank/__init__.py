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
    from collections.abc import Callable

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

_ERRORS = {
    ESPANK_SUCCESS: "no error",
    ESPANK_ERROR: "failed",
    ESPANK_BAD_ARG: "bad argument",
    ESPANK_NOT_TASK: "only in a task's hook",
    ESPANK_ENV_EXISTS: "variable exists",
    ESPANK_ENV_NOEXIST: "no such variable",
    ESPANK_NOSPACE: "too long",
    ESPANK_NOT_REMOTE: "only in the remote context",
    ESPANK_NOEXIST: "no such id or pid on this node",
    ESPANK_NOT_EXECD: "no task exists yet",
    ESPANK_NOT_AVAIL: "not available in this hook",
    ESPANK_NOT_LOCAL: "only in the local or allocator context",
    ESPANK_NODE_FAILURE: "failure of the node",
    ESPANK_JOB_FAILURE: "failure of the job",
}

SPANK_OPTION_MAXLEN = 75


class SpankError(Exception):
    """A SPANK call failed; `code` is one of ESPANK_*."""

    def __init__(self, code: int, what: str = "") -> None:
        super().__init__(f"{what}: {spank_strerror(code)}" if what else spank_strerror(code))
        self.code = code


class SpankOption:
    """The documents' struct spank_option. `has_arg`: 0 none, 1 required, 2 optional.

    `cb(val, optarg, remote) -> int`: in the command (remote 0) while it reads its options, in the stepd (remote 1)
    after init.
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
    """The meaning of an ESPANK_* number. Any process, any hook."""
    return _ERRORS.get(code, f"unknown error {code}")


def spank_get_item(sp: "Spank", item: int, argument: "int | None" = None) -> object:
    """The value of an S_* item; `argument` is the pid or id for the four translating items.

    Stepd and tasks: every item that exists at this point. Command: uid, gid, ids, argv, counts, after the job
    exists. Raises SpankError.
    """
    return sp.get_item(item, argument)


def spank_getenv(sp: "Spank", var: str) -> str:
    """The value of a variable of the job's environment. Remote only. Raises SpankError(ESPANK_ENV_NOEXIST, ...)."""
    environment = sp.job_environment()
    if var not in environment:
        raise SpankError(ESPANK_ENV_NOEXIST, var)
    return environment[var]


def spank_setenv(sp: "Spank", var: str, val: str, overwrite: int = 1) -> None:
    """Sets a variable: before the fork for every task, in a task's own hooks for that task. Remote only. Raises
    SpankError.
    """
    environment = sp.job_environment()
    if not var or "=" in var or "\0" in var + val:
        raise SpankError(ESPANK_BAD_ARG, repr(var))
    if not overwrite and var in environment:
        raise SpankError(ESPANK_ENV_EXISTS, var)
    environment[var] = val


def spank_unsetenv(sp: "Spank", var: str) -> None:
    """Removes a variable; an absent one is success. Remote only. Raises SpankError."""
    sp.job_environment().pop(var, None)


def spank_context() -> int:
    """The S_CTX_* this process loaded its plugins in."""
    from nodectl.spank.handle import current_context  # handle imports the names above

    return current_context()


def spank_remote(sp: "Spank") -> int:
    """1 in the stepd and its tasks, 0 elsewhere."""
    return int(sp.context == S_CTX_REMOTE)


def spank_option_register(sp: "Spank", option: SpankOption) -> None:
    """Offers an option to the command's users. Only in slurm_spank_init. Raises SpankError."""
    sp.register(option)


def spank_option_getopt(sp: "Spank", option: SpankOption) -> "str | None":
    """The argument the user gave ("" or None without one). Not in init, init_post_opt, task_post_fork, exit. Raises
    SpankError.
    """
    return sp.getopt(option)


def spank_symbol_supported(name: str) -> int:
    """1 when nodectl knows a hook of this name, 0 otherwise."""
    from nodectl.hooks import functions  # not needed by most plugins

    return int(name in functions("spank"))


slurm_error = messages.error
slurm_info = messages.info
slurm_verbose = messages.verbose
slurm_debug = messages.debug


def slurm_spank_log(text: str) -> None:
    """A line for the user at any verbosity."""
    messages.say(messages.PLAIN, f"nodectl: {text}")
