"""oom_score_adj: who is killed first when memory runs out (proc(5), /proc/PID/oom_score_adj).

Option: --oom-score-adj=N, the higher the sooner. In plugstack.conf:

    optional oom_score_adj default=500 min=0 max=1000

`default` is the value of tasks without the option (without `default`: 0, the value of every task of nodectl); it need
not lie within the bounds. `min` (0 without it) and `max` (1000) bound the option's value.

Hooks: init (arguments; a wrong one fails), the option's callback (refuses in the command), task_init_privileged (each
task, as root). A value below the task's present value needs CAP_SYS_RESOURCE, which root of some containers lacks: the
task then fails with a line that says so. Children of the task inherit the value; a user may raise it further.
"""

import os

from nodectl.spank import S_TASK_ID, SpankOption, slurm_error, spank_get_item
from nodectl.spank.handle import Spank

plugin_type = "spank"
plugin_name = "oom_score_adj"
plugin_version = (22, 5, 8)

_FILE = "/proc/self/oom_score_adj"
_LOWEST, _HIGHEST = -1000, 1000


class _State:
    min = 0
    max = _HIGHEST
    wanted: int | None = None


def _number(text: str | None, lowest: int, highest: int) -> int | None:
    """Return the decimal number, or None for text without a number and for a number out of bounds."""
    try:
        value = int(text or "", 10)
    except ValueError:
        return None
    return value if lowest <= value <= highest else None


def _option(val: int, optarg: str | None, remote: int) -> int:
    """Check --oom-score-adj in the command, and again in the stepd, because users can write their own client."""
    value = _number(optarg, _State.min, _State.max)
    if value is None:
        slurm_error(f"oom_score_adj: --oom-score-adj={optarg or ''}: not a number from {_State.min} to {_State.max}")
        return -1
    _State.wanted = value
    return 0


spank_options = [SpankOption("oom-score-adj", "N", "Kill tasks sooner when memory runs out.", 1, 0, _option)]


def slurm_spank_init(sp: Spank, ac: int, argv: list[str]) -> int:
    """Read min=, max= and default=."""
    good = True
    for word in argv:
        name, _, text = word.partition("=")
        value = _number(text, _LOWEST, _HIGHEST)
        if name not in ("min", "max", "default"):
            slurm_error(f"oom_score_adj: unknown argument {word!r} in plugstack.conf")
            good = False
        elif value is None:
            slurm_error(f"oom_score_adj: {word!r} in plugstack.conf: not a number from {_LOWEST} to {_HIGHEST}")
            good = False
        else:
            setattr(_State, "wanted" if name == "default" else name, value)
    return 0 if good else -1


def slurm_spank_task_init_privileged(sp: Spank, ac: int, argv: list[str]) -> int:
    """Set the task's value, which exec keeps. Task, root."""
    if _State.wanted is None:
        return 0
    try:
        descriptor = os.open(_FILE, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, str(_State.wanted).encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        why = f"{error.strerror} (a lower value needs CAP_SYS_RESOURCE)" if error.errno == 13 else error.strerror
        slurm_error(f"oom_score_adj: set {_State.wanted} for task {spank_get_item(sp, S_TASK_ID)}: {why}")
        return -1
    return 0
