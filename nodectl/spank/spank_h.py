"""The definitions of Slurm's spank.h: contexts, items, error codes, the error and the option.

Plugins import them from `nodectl.spank`. Values only, for every module of this package. Sources: today's Slurm, and its
recordings for the words of errors.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

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
    """A failed SPANK call; `code` is an ESPANK_* number."""

    def __init__(self, code: int, what: str = "") -> None:
        super().__init__(f"{what}: {spank_strerror(code)}" if what else spank_strerror(code))
        self.code = code


class SpankOption:
    """The documents' struct spank_option. `has_arg`: 0 none, 1 required, 2 optional.

    `cb(val, optarg, remote) -> int`: in the command (remote 0), as the user, while it reads its options: any result but
    0 refuses the command. In the stepd (remote 1), as root, after init: a failure is logged. Without an argument
    `optarg` is None, in the stepd "". A plugin's module-level list `spank_options` holds such objects.
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
