"""Choice of a step's cores on a node from the job's cores: all, or with --exact no more than the tasks need."""

from __future__ import annotations

from nodectl.placement.binding.request import BLOCK, FULL_CYCLIC, Distribution
from nodectl.placement.machine.topology import Topology


def needed(ntasks: int, cpus_per_task: int, threads: int, *, overcommit: bool) -> int:
    """Return the number of cores needed by the tasks, with `threads` of each core in use.

    Small tasks share a core; a task of more CPUs than a core has cores of its own. If `overcommit`, a task counts for
    one core whatever its size.
    """
    if overcommit:
        return ntasks
    together = threads // cpus_per_task
    if together > 1:
        return -(-ntasks // together)
    return ntasks * -(-cpus_per_task // threads)


def pick(machine: Topology, granted: int, count: int, group: int, distribution: Distribution | None) -> int:
    """Return the mask of `count` of the cores in `granted`, or of all if there are fewer.

    `group`: the number of cores of each task, which stay together; 0 for all. Cyclic takes a group from each socket in
    turn, full cyclic a core.
    """
    sockets = [[core.mask & granted for core in socket.cores if core.mask & granted] for socket in machine.sockets]
    free = sum(len(cores) for cores in sockets)
    if count >= free:
        return sum(sum(cores) for cores in sockets)
    level = distribution.socket if distribution else None
    if level == FULL_CYCLIC:
        group = 1
    if level == BLOCK or not group:
        group = count
    mask = 0
    at = [0] * len(sockets)
    socket = 0
    while count:
        for _ in range(min(group, count)):
            while at[socket] == len(sockets[socket]):
                socket = (socket + 1) % len(sockets)
            mask |= sockets[socket][at[socket]]
            at[socket] += 1
            count -= 1
        socket = (socket + 1) % len(sockets)
    return mask
