"""Facts of a process from /proc: the cgroup, the parent, and whether programs may gain privileges."""

import os

from nodectl.kernel import pseudo_file


def cgroup_of(pid: "int | str" = "self") -> str:
    """Return a process's cgroup in the cgroup2 hierarchy, "" if the process has gone.

    This is the "0::" line of /proc/PID/cgroup, cgroups(7).
    """
    lines = pseudo_file.read_if_any(f"/proc/{pid}/cgroup").split(b"\n")  # the one character that is in no cgroup's name
    return next((os.fsdecode(line[3:]) for line in lines if line.startswith(b"0::")), "")


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent, 0 for none. Raises OSError if the process has gone."""
    told = pseudo_file.read(f"/proc/{pid}/stat")
    return int(told.rpartition(b")")[2].split()[1])  # the name before it may have spaces and brackets, proc(5)


def has_no_new_privs(pid: "int | str" = "self") -> bool:
    """Return True if the process has no_new_privs, which no process takes back (prctl(2)), or has gone.

    A process sets the bit itself or is born with it.
    """
    try:
        return b"\nNoNewPrivs:\t0\n" not in pseudo_file.read(f"/proc/{pid}/status")
    except OSError:
        return True
