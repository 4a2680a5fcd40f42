"""The handle `sp` of every SPANK hook: the items and actions allowed in the current hook.

Each context and process has one handle. The stack sets `hook`, `plugin` and `task` around each call, so one place
decides which item exists in which hook. Rules and error codes: reference of today's Slurm.
"""

import os

from nodectl.model import launch_order
from nodectl.spank import spank_h
from nodectl.spank.spank_h import SpankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.model.step import Step, Task
    from nodectl.spank.spank_h import SpankOption
    from nodectl.spank.stacked_plugin import StackedPlugin

_GETOPT_HOOKS = frozenset(
    row.call
    for row in (
        launch_order.SPANK_LOCAL_USER_INIT,
        launch_order.SPANK_USER_INIT,
        launch_order.SPANK_TASK_INIT_PRIVILEGED,
        launch_order.SPANK_TASK_INIT,
        launch_order.SPANK_TASK_EXIT,
        launch_order.SPANK_JOB_PROLOG,
        launch_order.SPANK_JOB_EPILOG,
    )
)
_PID_HOOKS = frozenset(
    row.call for row in (launch_order.SPANK_TASK_POST_FORK, launch_order.SPANK_TASK_EXIT, launch_order.SPANK_EXIT)
)
# The hooks in the task's own process.
_OWN_HOOKS = frozenset(row.call for row in (launch_order.SPANK_TASK_INIT_PRIVILEGED, launch_order.SPANK_TASK_INIT))
_JOB_ITEMS = frozenset({spank_h.S_JOB_UID, spank_h.S_JOB_GID, spank_h.S_JOB_ID})
_LOCAL_ITEMS = _JOB_ITEMS | {
    spank_h.S_JOB_STEPID, spank_h.S_JOB_ARGV, spank_h.S_JOB_ENV, spank_h.S_JOB_TOTAL_TASK_COUNT, spank_h.S_JOB_NNODES,
}  # fmt: skip
_VERSION_ITEMS = {
    spank_h.S_SLURM_VERSION: "{}.{:02d}.{}",
    spank_h.S_SLURM_VERSION_MAJOR: "{}",
    spank_h.S_SLURM_VERSION_MINOR: "{1:02d}",
    spank_h.S_SLURM_VERSION_MICRO: "{2}",
}
_STEP_ITEMS = {
    spank_h.S_JOB_UID: "uid",
    spank_h.S_JOB_GID: "gid",
    spank_h.S_JOB_ID: "job_id",
    spank_h.S_JOB_STEPID: "step_id",
    spank_h.S_JOB_LOCAL_TASK_COUNT: "ntasks",
    spank_h.S_JOB_TOTAL_TASK_COUNT: "total_tasks",
    spank_h.S_JOB_NNODES: "nnodes",
    spank_h.S_JOB_NODEID: "nodeid",
    spank_h.S_JOB_NCPUS: "cpus",
    spank_h.S_STEP_CPUS_PER_TASK: "cpus_per_task",
    spank_h.S_JOB_ALLOC_CORES: "cores",
    spank_h.S_STEP_ALLOC_CORES: "cores",
    spank_h.S_JOB_ARRAY_ID: "array_id",
    spank_h.S_JOB_ARRAY_TASK_ID: "array_task_id",
    spank_h.S_SLURM_RESTART_COUNT: "restart",
    spank_h.S_JOB_ALLOC_MEM: "memory",
    spank_h.S_STEP_ALLOC_MEM: "memory",
}
FORWARDED = "_SLURM_SPANK_OPTION_"
"""What the names of variables begin with that carry options of plugins."""

_context = [spank_h.S_CTX_ERROR]


def current_context() -> int:
    """Return the context of this process's plugins."""
    return _context[0]


def forwarding_name(plugin: str, option: str) -> str:
    """Return the variable for an option, with an underscore for every byte except ASCII letters and digits."""
    raw = f"{plugin}_{option}".encode("utf-8", "surrogateescape")
    return FORWARDED + "".join(chr(byte) if byte < 128 and chr(byte).isalnum() else "_" for byte in raw)


def _item_name(item: object) -> str:
    names = (
        name for name, value in vars(spank_h).items() if name[:2] == "S_" and name[:6] != "S_CTX_" and value == item
    )
    return next(names, f"item {item}")


class Spank:
    """The handle `sp` of a SPANK hook, for plugins through the functions of `nodectl.spank`.

    `step` is None before and after the job. `job_control` holds the variables for prolog and epilog, under the names
    that plugins gave them.
    """

    __slots__ = ("context", "hook", "job_control", "plugin", "step", "task", "tasks")

    def __init__(self, context: int, step: "Step | None" = None) -> None:
        self.context = context
        self.step = step
        self.tasks: list[Task] = []
        self.task: Task | None = None
        self.hook = ""
        self.plugin: StackedPlugin | None = None
        self.job_control: dict[str, str] = {}
        _context[0] = context

    def job_environment(self) -> dict[str, str]:
        """Return the live environment: the task's in a task's own hooks, else the step's."""
        if self.context != spank_h.S_CTX_REMOTE or self.step is None:
            raise SpankError(spank_h.ESPANK_NOT_REMOTE)
        return self.task.environment if self.task is not None and self.hook in _OWN_HOOKS else self.step.environment

    def job_control_environment(self, *, change: bool = False) -> dict[str, str]:
        """Return the live job-control environment of the command."""
        if self.context == spank_h.S_CTX_REMOTE:
            raise SpankError(spank_h.ESPANK_NOT_LOCAL)
        if self.context == spank_h.S_CTX_JOB_SCRIPT:
            raise SpankError(spank_h.ESPANK_BAD_ARG if change else spank_h.ESPANK_ENV_NOEXIST)
        if self.context not in (spank_h.S_CTX_LOCAL, spank_h.S_CTX_ALLOCATOR):
            raise SpankError(spank_h.ESPANK_NOT_AVAIL)
        return self.job_control

    def prepend_argv(self, argc: int, argv: "Sequence[str] | None") -> None:
        """Do the work of spank_prepend_task_argv."""
        if self.context != spank_h.S_CTX_REMOTE:
            raise SpankError(spank_h.ESPANK_NOT_REMOTE, "spank_prepend_task_argv")
        if self.task is None or self.hook not in _OWN_HOOKS:
            raise SpankError(spank_h.ESPANK_NOT_TASK, "spank_prepend_task_argv")
        words = list(argv or ())[: max(argc, 0)]
        if not words or len(words) != argc or any("\0" in word for word in words):
            raise SpankError(spank_h.ESPANK_BAD_ARG, "spank_prepend_task_argv")
        self.task.argv[:0] = words

    def register(self, option: "SpankOption | None") -> None:
        """Do the work of spank_option_register."""
        if self.hook != launch_order.SPANK_INIT.call or self.plugin is None or option is None:
            raise SpankError(spank_h.ESPANK_BAD_ARG, "spank_option_register")
        self.plugin.offer(option)

    def getopt(self, option: "SpankOption | None") -> "str | None":
        """Do the work of spank_option_getopt."""
        if self.hook not in _GETOPT_HOOKS or self.plugin is None:
            raise SpankError(spank_h.ESPANK_NOT_AVAIL, "spank_option_getopt")
        if option is None or not option.name:
            raise SpankError(spank_h.ESPANK_BAD_ARG, "spank_option_getopt")
        given = self.plugin.given
        if option.name not in given:
            # A process that calls only job_prolog or job_epilog does not know options registered by init.
            known = option.name in self.plugin.options and self.context != spank_h.S_CTX_JOB_SCRIPT
            variable = forwarding_name(self.plugin.plugin.name, option.name)
            value = None if known else os.environ.get(variable, os.environ.get(f"SPANK_{variable}"))
            if value is None:
                raise SpankError(spank_h.ESPANK_ERROR, option.name)
            given[option.name] = value
        return given[option.name]

    def get_item(self, item: int, argument: "int | None") -> object:
        """Do the work of spank_get_item."""
        if item in _VERSION_ITEMS:
            return _VERSION_ITEMS[item].format(*spank_h.SLURM_VERSION)
        refusal = self._refusal(item)
        if refusal or self.step is None:
            raise SpankError(refusal or spank_h.ESPANK_NOT_AVAIL, _item_name(item))
        if item in (spank_h.S_TASK_ID, spank_h.S_TASK_GLOBAL_ID, spank_h.S_TASK_EXIT_STATUS, spank_h.S_TASK_PID):
            return self._task_item(item)
        if spank_h.S_JOB_PID_TO_GLOBAL_ID <= item <= spank_h.S_JOB_GLOBAL_TO_LOCAL_ID:
            return self._translate(self.step, item, argument)
        return self._step_item(self.step, item)

    def _refusal(self, item: int) -> int:
        """Return the error code for an item without a value in this context, else 0."""
        if self.context == spank_h.S_CTX_REMOTE:
            return 0 if 0 <= item <= spank_h.S_JOB_ARRAY_TASK_ID else spank_h.ESPANK_BAD_ARG
        if self.context == spank_h.S_CTX_JOB_SCRIPT:
            return 0 if item in _JOB_ITEMS else spank_h.ESPANK_NOT_AVAIL
        if self.context not in (spank_h.S_CTX_LOCAL, spank_h.S_CTX_ALLOCATOR):
            return spank_h.ESPANK_NOT_AVAIL
        if item not in _LOCAL_ITEMS:
            return spank_h.ESPANK_NOT_REMOTE
        if self.context == spank_h.S_CTX_LOCAL:
            return 0
        # There is never a job here; today's Slurm reports this for S_JOB_UID and S_JOB_GID only.
        return spank_h.ESPANK_NOT_AVAIL if item in (spank_h.S_JOB_UID, spank_h.S_JOB_GID) else spank_h.ESPANK_BAD_ARG

    def _task_item(self, item: int) -> object:
        task = self.task
        if task is None or (item == spank_h.S_TASK_EXIT_STATUS and task.status is None):
            raise SpankError(spank_h.ESPANK_NOT_TASK, _item_name(item))
        if item == spank_h.S_TASK_EXIT_STATUS:
            return task.status
        if item == spank_h.S_TASK_GLOBAL_ID:
            return task.global_id
        return task.pid if item == spank_h.S_TASK_PID else task.local_id

    def _translate(self, step: "Step", item: int, argument: "int | None") -> int:
        if argument is None:
            raise SpankError(spank_h.ESPANK_BAD_ARG, _item_name(item))
        if item in (spank_h.S_JOB_LOCAL_TO_GLOBAL_ID, spank_h.S_JOB_GLOBAL_TO_LOCAL_ID):
            return _renumbered(step, item, argument)
        if self.hook not in _PID_HOOKS:
            raise SpankError(spank_h.ESPANK_NOT_EXECD, f"pid {argument}")
        for task in self.tasks:
            if task.pid == argument:
                return task.global_id if item == spank_h.S_JOB_PID_TO_GLOBAL_ID else task.local_id
        raise SpankError(spank_h.ESPANK_NOEXIST, f"pid {argument}")

    def _step_item(self, step: "Step", item: int) -> object:
        if item in _STEP_ITEMS:
            return getattr(step, _STEP_ITEMS[item])
        if item == spank_h.S_JOB_ENV:
            return self.job_environment() if self.context == spank_h.S_CTX_REMOTE else None
        if item == spank_h.S_JOB_ARGV:
            return list(step.argv if self.task is None or not self.task.argv else self.task.argv)
        return list(step.gids)  # S_JOB_SUPPLEMENTARY_GIDS


def _renumbered(step: "Step", item: int, argument: int) -> int:
    """Return a task's number in the whole step for a local id, or the local id for a number. Raises SpankError."""
    numbers = step.numbers
    if item == spank_h.S_JOB_LOCAL_TO_GLOBAL_ID:
        if 0 <= argument < len(numbers):
            return numbers[argument]
    elif argument in numbers:
        return numbers.index(argument)
    elif not 0 <= argument < step.total_tasks:
        raise SpankError(spank_h.ESPANK_BAD_ARG, f"id {argument}")
    raise SpankError(spank_h.ESPANK_NOEXIST, f"id {argument}")
