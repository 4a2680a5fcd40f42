"""Slurm's reasons why a job waits or has ended, each declared here once. Pure."""

from nodectl.model.states import DEADLINE, FAILED, NODE_FAIL, OUT_OF_MEMORY, TIMEOUT

NO_REASON, RESOURCES, PRIORITY, RESERVATION = "None", "Resources", "Priority", "Reservation"
DEPENDENCY, NEVER_SATISFIED = "Dependency", "DependencyNeverSatisfied"
BEGIN_TIME, ARRAY_LIMIT = "BeginTime", "JobArrayTaskLimit"
NOT_AVAILABLE, BAD_CONSTRAINTS = "ReqNodeNotAvail", "BadConstraints"
HELD_BY_USER, HELD_BY_ADMIN = "JobHeldUser", "JobHeldAdmin"
LAUNCH_FAILURE, WAS_PREEMPTED = "JobLaunchFailure", "Preempted"
PAST_DEADLINE = "DeadLine"
# The limits of a user, by their names in `nodectl/scheduler/limits.py`.
USER_LIMITS = {
    "submitted": "QOSMaxSubmitJobPerUserLimit",
    "jobs": "QOSMaxJobsPerUserLimit",
    "cpus": "QOSMaxCpuPerUserLimit",
    "memory": "QOSMaxMemoryPerUser",
    "devices": "QOSMaxGRESPerUser",
}
_ENDS = {
    FAILED: "NonZeroExitCode", TIMEOUT: "TimeLimit", NODE_FAIL: "NodeDown", DEADLINE: PAST_DEADLINE,
    OUT_OF_MEMORY: "OutOfMemory",
}  # fmt: skip
_SIGNALLED = 128  # above it, an exit status stands for a signal


def end_reason(state: str, exit_status: int) -> str:
    """Return Slurm's reason for the end of a job in `state`, "" for none.

    `exit_status` is a shell's: above 128 for a signal, which Slurm 22.05 counts as a failed launch.
    """
    if state == FAILED and exit_status > _SIGNALLED:
        return LAUNCH_FAILURE
    return _ENDS.get(state, "")
