"""The states of jobs and steps, each declared here once.

The table gives each state's short form, and what the rest of nodectl asks of a state. `nodectl.selection.modes` has the
states of jobs by the same names, for plugins. Pure and lean: in every process.
"""

PENDING, RUNNING, SUSPENDED, CONFIGURING, COMPLETING = "PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING"
COMPLETED, CANCELLED, FAILED, TIMEOUT = "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"
NODE_FAIL, PREEMPTED, OUT_OF_MEMORY, DEADLINE = "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE"
BOOT_FAIL, REQUEUED, RESIZING = "BOOT_FAIL", "REQUEUED", "RESIZING"

# In the order of Slurm's numbers, with their short forms.
_ENDS = {
    COMPLETED: "CD", CANCELLED: "CA", FAILED: "F", TIMEOUT: "TO", NODE_FAIL: "NF", PREEMPTED: "PR", BOOT_FAIL: "BF",
    DEADLINE: "DL", OUT_OF_MEMORY: "OOM",
}  # fmt: skip
SHORT = {
    PENDING: "PD", RUNNING: "R", SUSPENDED: "S", **_ENDS,
    CONFIGURING: "CF", COMPLETING: "CG", REQUEUED: "RQ", RESIZING: "RS",
}  # fmt: skip
STATES = tuple(sorted(SHORT))
BEGUN = (RUNNING, SUSPENDED)
IN_QUEUE = (PENDING, *BEGUN, COMPLETING)
ENDED = tuple(_ENDS)
_NAMES = {short: state for state, short in SHORT.items()}


def state_named(word: str) -> str:
    """Return the state for a name or a short form. Raises ValueError."""
    name = word.strip().upper()
    found = _NAMES.get(name, name)
    if found not in SHORT:
        raise ValueError(f"no state {word[:40]!r}: {', '.join(STATES)}")
    return found
