"""renice: users choose the nice value of their tasks.

Option: --renice[=PRIO], or SLURM_RENICE in the job's environment. In plugstack.conf: `optional renice min_prio=N`
sets the lowest value allowed. Hooks: init (arguments), task_post_fork (setpriority(2) on each task, as root, before
its program starts).
"""

import os

from nodectl.spank import (
    S_TASK_GLOBAL_ID,
    S_TASK_PID,
    SpankError,
    SpankOption,
    slurm_error,
    slurm_info,
    slurm_verbose,
    spank_get_item,
    spank_getenv,
    spank_remote,
)
from nodectl.spank.handle import Spank

plugin_type = "spank"
plugin_name = "renice"
plugin_version = (22, 5, 8)

VARIABLE = "SLURM_RENICE"
_LOWEST, _HIGHEST = -20, 20


class _State:
    min_prio = _LOWEST
    prio: int | None = None


def _number(text: str | None) -> int | None:
    """Return a nice value, or None for any text without a nice value."""
    try:
        value = int(text or "", 10)
    except ValueError:
        return None
    return value if _LOWEST <= value <= _HIGHEST else None


def _option(val: int, optarg: str | None, remote: int) -> int:
    """Store the value of --renice; the command warns about a value below the lowest allowed value."""
    prio = _number(optarg)
    if prio is None:
        slurm_error(f"renice: --renice={optarg or ''}: not a number from {_LOWEST} to {_HIGHEST}")
        return -1
    if prio < _State.min_prio and not remote:
        slurm_error(f"renice: --renice={prio} is below the lowest allowed value, {_State.min_prio} is used")
    _State.prio = prio
    return 0


spank_options = [SpankOption("renice", "[PRIO]", "set the nice value of the tasks, -20 to 20", 2, 0, _option)]


def slurm_spank_init(sp: Spank, ac: int, argv: list[str]) -> int:
    """Read min_prio= from plugstack.conf."""
    for word in argv:
        name, _, value = word.partition("=")
        lowest = _number(value)
        if name != "min_prio":
            slurm_error(f"renice: unknown argument {word!r} in plugstack.conf")
        elif lowest is None:
            slurm_error(f"renice: {word!r} in plugstack.conf is ignored: not a number from {_LOWEST} to {_HIGHEST}")
        else:
            _State.min_prio = lowest
    if not spank_remote(sp):
        slurm_verbose(f"renice: nice values from {_State.min_prio} upwards are allowed")
    return 0


def slurm_spank_task_post_fork(sp: Spank, ac: int, argv: list[str]) -> int:
    """Set the task's nice value before the start of the program. Stepd, root."""
    prio = _State.prio
    if prio is None:
        try:
            text = spank_getenv(sp, VARIABLE)
        except SpankError:
            return 0
        prio = _number(text)
        if prio is None:
            slurm_error(f"renice: {VARIABLE}={text}: not a number from {_LOWEST} to {_HIGHEST}")
            return -1
    if prio < _State.min_prio:
        if _State.prio is None:  # the command has already warned the user of the option
            slurm_error(f"renice: {VARIABLE}={prio} is below the lowest allowed value, {_State.min_prio} is used")
        prio = _State.min_prio
    pid = spank_get_item(sp, S_TASK_PID)
    assert isinstance(pid, int)  # noqa: S101  # of this item always
    slurm_info(f"renice: task {spank_get_item(sp, S_TASK_GLOBAL_ID)}, pid {pid}: nice value {prio}")
    os.setpriority(os.PRIO_PROCESS, pid, prio)
    return 0
