"""Questions about child processes, asked by the wait of a step."""

import os

from nodectl.kernel import pseudo_file

NO_CHILD = 0
NO_PROGRAM = 127  # the exit status of a child whose program could not be executed, as a shell's
_FLAGS = 6  # of the fields behind the name in /proc/PID/stat
_FORKED_AND_NOT_EXECUTED = 0x40  # PF_FORKNOEXEC
_DUMPING = 0x200  # PF_DUMPCORE


def next_to_collect() -> int | None:
    """Return the pid of an ended child not collected yet, None for none, NO_CHILD without any child.

    Uses waitid(2) with WNOWAIT.
    """
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return NO_CHILD
    return None if ended is None else ended.si_pid


def has_executed(pid: int) -> bool:
    """Return True when the process, living or not yet collected, has called execve(2) since the fork."""
    flags = _flags(pid)
    return flags is not None and not flags & _FORKED_AND_NOT_EXECUTED


def dumps_core(pid: int) -> bool:
    """Return True while the process writes a core, which SIGKILL would cut off."""
    return bool((_flags(pid) or 0) & _DUMPING)


def ignores(pid: int, number: int) -> bool:
    """Return True when the process ignores the signal."""
    try:
        _, _, mask = pseudo_file.read(f"/proc/{pid}/status").partition(b"SigIgn:")
    except OSError:
        return False
    return bool(mask and int(mask.split()[0], 16) >> (number - 1) & 1)


def _flags(pid: int) -> int | None:
    """Return PF_* of proc(5); None if there is no such process."""
    try:
        return int(pseudo_file.read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()[_FLAGS])
    except OSError:
        return None


def said(status: int) -> str:
    """Return a wait status in words."""
    if os.WIFSIGNALED(status):
        return f"was ended by signal {os.WTERMSIG(status)}{' and dumped core' if os.WCOREDUMP(status) else ''}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"
