"""The largest size of a step's trace.

The trace lies in the runtime directory, usually in memory, and its user decides how many lines there are. So each step
has room for a number of bytes, which count against its user (daemon/admission/user_budget.py). The stepd writes no line
that does not fit (kernel/c/trace.c).
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step

LONGEST = 16 << 20
_OF_STEP = 64 << 10
_OF_COMMANDS = 64 << 10  # of a bulk step, which records its first commands
_OF_TASK = 4 << 10  # eight lines or nine, with a few groups and the mask of a large machine
_OF_PLUGIN = 1 << 10  # for a task: its calls in each of them


def of(step: "Step") -> int:
    """Return the step's room in bytes."""
    of_task = _OF_TASK + _OF_PLUGIN * len(step.stack)
    return min(LONGEST, _OF_STEP + of_task * step.ntasks + (_OF_COMMANDS if step.bulk else 0))
