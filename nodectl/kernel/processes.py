"""What /proc tells of a process: in which cgroup it is, and whether its programs may gain privileges."""

import os

from nodectl.kernel import pseudo_file


def cgroup_of(pid: "int | str" = "self") -> str:
    """A process's place in the cgroup2 hierarchy: the "0::" line of /proc/PID/cgroup, cgroups(7). "" when it has
    gone.
    """
    try:
        lines = pseudo_file.read(f"/proc/{pid}/cgroup").split(b"\n")  # the one character that is in no cgroup's name
    except OSError:
        return ""
    return next((os.fsdecode(line[3:]) for line in lines if line.startswith(b"0::")), "")


def has_no_new_privs(pid: "int | str" = "self") -> bool:
    """True where the process has set no_new_privs, or was born with it, which no process takes back: prctl(2). True
    also when it has gone.
    """
    try:
        return b"\nNoNewPrivs:\t0\n" not in pseudo_file.read(f"/proc/{pid}/status")
    except OSError:
        return True
