"""The states of jobs and steps, and Slurm's reasons for a wait or an end: each word is declared here once.

The table gives each state's short form, and what the rest of nodectl asks of a state. `nodectl.selection.modes` has the
states of jobs by the same names, for plugins. Pure and lean: in every process.
"""

PENDING, RUNNING, SUSPENDED, CONFIGURING, COMPLETING = "PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING"
COMPLETED, CANCELLED, FAILED, TIMEOUT = "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"
NODE_FAIL, PREEMPTED, OUT_OF_MEMORY, DEADLINE = "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE"
BOOT_FAIL, REQUEUED, RESIZING = "BOOT_FAIL", "REQUEUED", "RESIZING"

# Why a job waits, or has ended; a user's limits have theirs in `nodectl/scheduler/limits.py`.
NO_REASON, RESOURCES, PRIORITY, RESERVATION = "None", "Resources", "Priority", "Reservation"
DEPENDENCY, NEVER_SATISFIED = "Dependency", "DependencyNeverSatisfied"
BEGIN_TIME, ARRAY_LIMIT, NOT_AVAILABLE = "BeginTime", "JobArrayTaskLimit", "ReqNodeNotAvail"
HELD_BY_USER, HELD_BY_ADMIN = "JobHeldUser", "JobHeldAdmin"
LAUNCH_FAILURE, WAS_PREEMPTED = "JobLaunchFailure", "Preempted"
PAST_DEADLINE = "DeadLine"
_SIGNALLED = 128  # above it, an exit status stands for a signal

# In the order of Slurm's numbers: the short form, and in a final state the reason, "" for none.
_ENDS = {
    COMPLETED: ("CD", ""), CANCELLED: ("CA", ""), FAILED: ("F", "NonZeroExitCode"), TIMEOUT: ("TO", "TimeLimit"),
    NODE_FAIL: ("NF", "NodeDown"), PREEMPTED: ("PR", ""), BOOT_FAIL: ("BF", ""), DEADLINE: ("DL", PAST_DEADLINE),
    OUT_OF_MEMORY: ("OOM", "OutOfMemory"),
}  # fmt: skip
SHORT = {
    PENDING: "PD", RUNNING: "R", SUSPENDED: "S", **{state: short for state, (short, _) in _ENDS.items()},
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


def end_reason(state: str, exit_status: int) -> str:
    """Return Slurm's reason for the end of a job in `state`, "" for none.

    `exit_status` is a shell's: above 128 for a signal, which Slurm 22.05 counts as a failed launch.
    """
    if state == FAILED and exit_status > _SIGNALLED:
        return LAUNCH_FAILURE
    return _ENDS[state][1] if state in _ENDS else ""
