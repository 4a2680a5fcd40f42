"""The `sp` that every SPANK hook is given: what may be asked and changed here and now.

One handle per context and process. The stack sets `hook`, `plugin` and `task` around each call, so that validity
(which item exists in which hook) is decided in one place. Rules and error codes: reference of today's Slurm, with the
node's one-step numbers.
"""

from nodectl import spank
from nodectl.spank import SpankError, SpankOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.spank.stack import StackedPlugin
    from nodectl.step import Step, Task

_NO_VALUE = 0xFFFFFFFE
_GETOPT_HOOKS = frozenset(
    f"slurm_spank_{name}"
    for name in (
        "local_user_init",
        "user_init",
        "task_init_privileged",
        "task_init",
        "task_exit",
        "job_prolog",
        "job_epilog",
    )
)
_PID_HOOKS = frozenset({"slurm_spank_task_post_fork", "slurm_spank_task_exit", "slurm_spank_exit"})
_LOCAL_ITEMS = frozenset({
    spank.S_JOB_UID, spank.S_JOB_GID, spank.S_JOB_ID, spank.S_JOB_STEPID, spank.S_JOB_ARGV, spank.S_JOB_ENV,
    spank.S_JOB_TOTAL_TASK_COUNT, spank.S_JOB_NNODES,
})  # fmt: skip
_VERSION_ITEMS = {
    spank.S_SLURM_VERSION: "{}.{:02d}.{}",
    spank.S_SLURM_VERSION_MAJOR: "{}",
    spank.S_SLURM_VERSION_MINOR: "{1:02d}",
    spank.S_SLURM_VERSION_MICRO: "{2}",
}

_context = [spank.S_CTX_ERROR]


def current_context() -> int:
    """The context of this process's plugins."""
    return _context[0]


class Spank:
    """See the module. Plugins use it through the functions of `nodectl.spank`."""

    __slots__ = ("context", "hook", "plugin", "step", "task", "tasks")

    def __init__(self, context: int, step: "Step | None" = None) -> None:
        self.context = context
        self.step = step
        self.tasks: list[Task] = []
        self.task: Task | None = None
        self.hook = ""
        self.plugin: StackedPlugin | None = None
        _context[0] = context

    def job_environment(self) -> dict[str, str]:
        """The live environment: the task's in its own hooks, the step's elsewhere."""
        if self.context != spank.S_CTX_REMOTE or self.step is None:
            raise SpankError(spank.ESPANK_NOT_REMOTE)
        return self.task.environment if self._in_task_process() and self.task else self.step.environment

    def _in_task_process(self) -> bool:
        return self.hook in ("slurm_spank_task_init_privileged", "slurm_spank_task_init")

    def register(self, option: SpankOption) -> None:
        """spank_option_register."""
        if self.hook != "slurm_spank_init" or self.plugin is None or not option.name or not option.usage:
            raise SpankError(spank.ESPANK_BAD_ARG, "spank_option_register")
        if len(option.name) > spank.SPANK_OPTION_MAXLEN:
            raise SpankError(spank.ESPANK_NOSPACE, option.name)
        self.plugin.options[option.name] = option

    def getopt(self, option: SpankOption) -> "str | None":
        """spank_option_getopt."""
        if self.hook not in _GETOPT_HOOKS or self.plugin is None:
            raise SpankError(spank.ESPANK_NOT_AVAIL, "spank_option_getopt")
        if option.name not in self.plugin.given:
            raise SpankError(spank.ESPANK_ERROR, option.name)
        return self.plugin.given[option.name]

    def get_item(self, item: int, argument: "int | None") -> object:
        """spank_get_item."""
        if item in _VERSION_ITEMS:
            return _VERSION_ITEMS[item].format(*spank.SLURM_VERSION)
        if not 0 <= item <= spank.S_JOB_ARRAY_TASK_ID:
            raise SpankError(spank.ESPANK_BAD_ARG, f"item {item}")
        if self.context == spank.S_CTX_LOCAL:
            if item not in _LOCAL_ITEMS:
                raise SpankError(spank.ESPANK_NOT_REMOTE, f"item {item}")
            if self.step is None:
                raise SpankError(spank.ESPANK_NOT_AVAIL, f"item {item}")
        elif self.context != spank.S_CTX_REMOTE:
            raise SpankError(spank.ESPANK_NOT_AVAIL, f"item {item}")
        assert self.step is not None  # noqa: S101  # for mypy: both branches above saw to it
        if item in (spank.S_TASK_ID, spank.S_TASK_GLOBAL_ID, spank.S_TASK_EXIT_STATUS, spank.S_TASK_PID):
            return self._task_item(item)
        if spank.S_JOB_PID_TO_GLOBAL_ID <= item <= spank.S_JOB_GLOBAL_TO_LOCAL_ID:
            return self._translate(item, argument)
        return self._step_item(self.step, item)

    def _task_item(self, item: int) -> object:
        if self.task is None:
            raise SpankError(spank.ESPANK_NOT_TASK, f"item {item}")
        if item == spank.S_TASK_EXIT_STATUS:
            if self.task.status is None:
                raise SpankError(spank.ESPANK_NOT_TASK, f"item {item}")
            return self.task.status
        return self.task.pid if item == spank.S_TASK_PID else self.task.local_id

    def _translate(self, item: int, argument: "int | None") -> int:
        if argument is None:
            raise SpankError(spank.ESPANK_BAD_ARG, f"item {item}")
        assert self.step is not None  # noqa: S101  # get_item has checked
        if item in (spank.S_JOB_LOCAL_TO_GLOBAL_ID, spank.S_JOB_GLOBAL_TO_LOCAL_ID):
            if 0 <= argument < self.step.ntasks:
                return argument
            beyond = spank.ESPANK_NOEXIST if item == spank.S_JOB_LOCAL_TO_GLOBAL_ID else spank.ESPANK_BAD_ARG
            raise SpankError(beyond, f"id {argument}")
        if self.hook not in _PID_HOOKS:
            raise SpankError(spank.ESPANK_NOT_EXECD, f"pid {argument}")
        for task in self.tasks:
            if task.pid == argument:
                return task.local_id
        raise SpankError(spank.ESPANK_NOEXIST, f"pid {argument}")

    def _step_item(self, step: "Step", item: int) -> object:
        values: dict[int, object] = {
            spank.S_JOB_UID: step.uid,
            spank.S_JOB_GID: step.gid,
            spank.S_JOB_ID: step.job_id,
            spank.S_JOB_STEPID: step.step_id,
            spank.S_JOB_NNODES: 1,
            spank.S_JOB_NODEID: 0,
            spank.S_JOB_LOCAL_TASK_COUNT: step.ntasks,
            spank.S_JOB_TOTAL_TASK_COUNT: step.ntasks,
            spank.S_JOB_NCPUS: step.cpus,
            spank.S_JOB_ARGV: step.argv if self.task is None or not self.task.argv else self.task.argv,
            spank.S_JOB_ENV: None if self.context == spank.S_CTX_LOCAL else self.job_environment,
            spank.S_JOB_SUPPLEMENTARY_GIDS: list(step.gids),
            spank.S_STEP_CPUS_PER_TASK: step.cpus_per_task,
            spank.S_JOB_ALLOC_MEM: 0,
            spank.S_STEP_ALLOC_MEM: 0,
            spank.S_SLURM_RESTART_COUNT: 0,
            spank.S_JOB_ARRAY_ID: 0,
            spank.S_JOB_ARRAY_TASK_ID: _NO_VALUE,
        }
        if item not in values:
            raise SpankError(spank.ESPANK_NOT_AVAIL, f"item {item}")
        value = values[item]
        return value() if callable(value) else value
