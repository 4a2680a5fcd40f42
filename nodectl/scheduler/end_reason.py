"""Slurm's word for a job's end: the Reason of scontrol, squeue and sacct. Pure, in the daemon."""

from __future__ import annotations

_OF_STATES = {
    "TIMEOUT": "TimeLimit",
    "OUT_OF_MEMORY": "OutOfMemory",
    "DEADLINE": "DeadLine",
    "NODE_FAIL": "NodeDown",
}
_SIGNALLED = 128


def end_reason(state: str, exit_status: int) -> str:
    """Return the word for the end of a job in `state`, "" for none.

    `exit_status` is a shell's: above 128 for a signal, which Slurm 22.05 counts as a failed launch.
    """
    if state == "FAILED":
        return "JobLaunchFailure" if exit_status > _SIGNALLED else "NonZeroExitCode"
    return _OF_STATES.get(state, "")
