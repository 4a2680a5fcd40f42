"""Which cores of a node a job gets, once it is known how many CPUs: whole cores, socket by socket or in turn.

These are the rules of Slurm's cons_tres, whose unit of allocation is the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from nodectl.topology import Core, Topology

# Beyond this many boards the best set of them is not looked for, but boards are taken one by one.
_MAX_BOARDS = 8


def block(machine: Topology, sockets: Sequence[Sequence[Core]], cpus: int, threads: int) -> list[Core]:
    """Take cores for `cpus` CPUs, `threads` on each, from as few boards and then sockets as can be.

    `sockets`: the free cores of each socket. Of sets of boards that serve alike the last is taken. Inside, the smallest
    socket that holds all that is still wanted goes first, or else the largest.
    """
    wanted = min(-(-cpus // threads), sum(map(len, sockets)))
    groups = [
        [free for socket, free in zip(machine.sockets, sockets, strict=True) if socket.mask & board.mask and free]
        for board in machine.boards
    ]
    left = _boards(groups, wanted)
    taken: list[Core] = []
    while wanted > len(taken):
        rest = wanted - len(taken)
        fitting = [free for free in left if len(free) >= rest]
        best = min(fitting, key=len) if fitting else max(left, key=len)
        left = [free for free in left if free is not best]
        taken += best[:rest]
    return taken


def _boards(groups: Sequence[Sequence[Sequence[Core]]], wanted: int) -> list[Sequence[Core]]:
    """The sockets of the best set of boards that has `wanted` cores."""
    everything = [free for group in groups for free in group]
    if len(groups) > _MAX_BOARDS:
        return everything
    for count in range(1, len(groups)):
        sets = [[free for group in chosen for free in group] for chosen in combinations(groups, count)]
        able = [free for free in sets if sum(map(len, free)) >= wanted]
        if able:
            return min(reversed(able), key=lambda free: (_fewest(free, wanted), sum(map(len, free))))
    return everything


def _fewest(sockets: Sequence[Sequence[Core]], wanted: int) -> int:
    """How many of these sockets are needed at least for `wanted` cores."""
    for count, size in enumerate(sorted(map(len, sockets), reverse=True), 1):
        wanted -= size
        if wanted <= 0:
            return count
    return len(sockets)


def cyclic(
    sockets: Sequence[Sequence[Core]], cpus: int, threads: int, *, cpus_per_task: int, per_socket: int
) -> list[Core]:
    """Take cores for `cpus` CPUs, `threads` on each, from the sockets in turn.

    A socket gives one core; if tasks have several CPUs, it gives what holds as many whole tasks as it can. Where no
    socket has room for a whole task, each gives one core again. `per_socket`: at most so many tasks on a socket, 0 for
    no limit; the first sockets that are not needed are then left alone.
    """
    left = [list(free) for free in sockets]
    if per_socket:
        _leave_alone(left, cpus, threads, per_socket * cpus_per_task)
    taken: list[Core] = []
    whole_tasks = cpus_per_task > 1
    while cpus > 0 and any(left):
        before = cpus
        for free in left:
            share = len(free) * threads // cpus_per_task * cpus_per_task if whole_tasks else min(1, len(free))
            while share > 0 and cpus > 0:
                taken.append(free.pop(0))
                share -= threads
                cpus -= threads
        if cpus == before:
            whole_tasks = False
    return taken


def _leave_alone(sockets: list[list[Core]], cpus: int, threads: int, limit: int) -> None:
    """Empty the sockets, from the first on, without which the rest still gives `cpus`."""
    gives = [min(len(free) * threads, limit) for free in sockets]
    total = sum(gives)
    for free, share in zip(sockets, gives, strict=True):
        if total - share >= cpus:
            total -= share
            free.clear()
