"""The contexts of SPANK plugins and the hooks called in each context, in order: a row for each context.

For the commands that show or try a stack; other modules make the calls.
"""

from nodectl import spank
from nodectl.model import launch_order


class Context:
    """A context. `number`: S_CTX_*; `process`: process and user; `static_options`: whether spank_options counts."""

    __slots__ = ("calls", "name", "number", "process", "static_options")

    def __init__(self, name: str, number: int, process: str, calls: tuple[str, ...], *, static_options: bool) -> None:
        self.name = name
        self.number = number
        self.process = process
        self.calls = calls
        self.static_options = static_options


def _calls(*rows: launch_order.Hook) -> tuple[str, ...]:
    return tuple(row.call for row in rows)


_REMOTE = _calls(
    *(
        row
        for row in launch_order.HOOKS
        if row.kind == "spank" and row.process in ("stepd", "task") and row is not launch_order.OPTION
    )
)

CONTEXTS = (
    Context(
        "slurmd", spank.S_CTX_SLURMD, "the daemon's helper, root",
        _calls(*launch_order.SLURMD_HOOKS), static_options=True,
    ),
    # The table of options is not read here, only what slurm_spank_init registers.
    Context(
        "allocator", spank.S_CTX_ALLOCATOR, "the command that asks for an allocation, its user",
        _calls(*(row for row in launch_order.LOCAL_HOOKS if row is not launch_order.SPANK_LOCAL_USER_INIT)),
        static_options=False,
    ),
    Context(
        "local", spank.S_CTX_LOCAL, "nodectl run, its user", _calls(*launch_order.LOCAL_HOOKS), static_options=True,
    ),
    Context(
        "job_script", spank.S_CTX_JOB_SCRIPT, "a process for each, root",
        _calls(launch_order.SPANK_JOB_PROLOG, launch_order.SPANK_JOB_EPILOG), static_options=True,
    ),
    Context(
        "remote", spank.S_CTX_REMOTE, "the stepd and its tasks, root and the user", _REMOTE,
        static_options=True,
    ),
)  # fmt: skip


def called_in(hook: str) -> list[str]:
    """Return the names of the contexts which call the hook."""
    return [context.name for context in CONTEXTS if hook in context.calls]


def short(hook: str) -> str:
    """Return the hook's name without the prefix: task_init for slurm_spank_task_init."""
    return hook.removeprefix(launch_order.SPANK_PREFIX)
