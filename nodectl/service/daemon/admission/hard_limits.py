"""The hard limits of tasks: from the configuration; for limits not configured, from a login session.

A login session has the limits of the first process unless its system says otherwise; pam_limits(8) of Debian does the
same. Three of them are used: a user's processes, which the kernel counts over all of them, locked memory, and core
files. No user has more processes than half of the machine's threads, which is the kernel's own default, nor than half
of its numbers for processes.
"""

import resource

from nodectl.launch.task.keys import hard_limit
from nodectl.model.config import Config
from nodectl.placement.machine.thread_limit import most_threads

_OF_A_LOGIN = ("NPROC", "MEMLOCK", "CORE")
_FIRST = 1  # its pid


def of_tasks(config: Config) -> dict[str, int]:
    """Return the hard limits of tasks by names without RLIMIT_, -1 for infinity."""
    limits = {name: _of_the_first(name) for name in _OF_A_LOGIN}
    half = most_threads() // 2
    limits["NPROC"] = half if limits["NPROC"] < 0 else min(limits["NPROC"], half)
    return limits | dict(map(hard_limit, config.task_hard_limits))


def _of_the_first(name: str) -> int:
    number = getattr(resource, f"RLIMIT_{name}")
    try:
        hard = resource.prlimit(_FIRST, number)[1]
    except OSError:  # in a container the first process may belong to another user
        hard = resource.getrlimit(number)[1]
    return -1 if hard == resource.RLIM_INFINITY else hard
