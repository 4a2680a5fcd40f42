"""Questions about child processes that the wait of a step asks."""

import os

from nodectl import kernel_file

NO_CHILD = 0
_FLAGS = 6  # of the fields behind the name in /proc/PID/stat
_FORKED_AND_NOT_EXECUTED = 0x40  # PF_FORKNOEXEC


def next_to_collect() -> int | None:
    """A child that has ended and is not collected yet, None for none, NO_CHILD where there is no child at all:
    waitid(2) with WNOWAIT.
    """
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return NO_CHILD
    return None if ended is None else ended.si_pid


def has_executed(pid: int) -> bool:
    """True when the process, living or not yet collected, has called execve(2) since its fork: flags of proc(5)."""
    try:
        fields = kernel_file.read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    except OSError:
        return False
    return not int(fields[_FLAGS]) & _FORKED_AND_NOT_EXECUTED


def said(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        return f"was ended by signal {os.WTERMSIG(status)}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"
