"""Which cores of a node a job gets, once it is known how many CPUs: whole cores, socket by socket or in turn.

These are the rules of Slurm's cons_tres, whose unit of allocation is the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from nodectl.machine.topology import Topology

# Beyond this many boards the best set of them is not looked for.
_MAX_BOARDS = 8


@dataclass(frozen=True, slots=True)
class FreeCore:
    """A core that the job may have: the mask of its usable CPUs, and how many of them the job uses."""

    mask: int
    cpus: int


Socket = Sequence[FreeCore]


def capacity(sockets: Sequence[Socket]) -> int:
    """CPUs that these sockets give."""
    return sum(core.cpus for socket in sockets for core in socket)


def first(socket: Socket, cpus: int) -> Socket:
    """The first cores of the socket that give `cpus`, all if they do not suffice."""
    count = 0
    while cpus > 0 and count < len(socket):
        cpus -= socket[count].cpus
        count += 1
    return socket[:count]


def block(machine: Topology, sockets: Sequence[Socket], cpus: int) -> list[FreeCore]:
    """Take cores for `cpus` CPUs from as few boards and then sockets as can be.

    `sockets`: the free cores of each socket of the machine. Of sets of boards that serve alike the last is taken.
    Inside, the smallest socket that holds all that is still wanted goes first, or else the largest.
    """
    boards = [
        [free for socket, free in zip(machine.sockets, sockets, strict=True) if socket.mask & board.mask and free]
        for board in machine.boards
    ]
    left = _boards(boards, cpus)
    taken: list[FreeCore] = []
    while cpus > 0 and left:
        fitting = [free for free in left if capacity([free]) >= cpus]
        best = min(fitting, key=len) if fitting else max(left, key=len)
        left = [free for free in left if free is not best]
        taken += first(best, cpus)
        cpus -= capacity([best])
    return taken


def _boards(boards: Sequence[Sequence[Socket]], cpus: int) -> list[Socket]:
    """The sockets of the best set of boards that gives `cpus`."""
    if len(boards) <= _MAX_BOARDS:
        for count in range(1, len(boards)):
            sets = [[socket for board in chosen for socket in board] for chosen in combinations(boards, count)]
            able = [sockets for sockets in sets if capacity(sockets) >= cpus]
            if able:
                return min(reversed(able), key=lambda sockets: (_fewest(sockets, cpus), capacity(sockets)))
    return [socket for board in boards for socket in board]


def _fewest(sockets: Sequence[Socket], cpus: int) -> int:
    """How many of these sockets are needed at least for `cpus`."""
    for count, size in enumerate(sorted((capacity([socket]) for socket in sockets), reverse=True), 1):
        cpus -= size
        if cpus <= 0:
            return count
    return len(sockets)


def cyclic(sockets: Sequence[Socket], cpus: int, *, cpus_per_task: int, per_socket: int) -> list[FreeCore]:
    """Take cores for `cpus` CPUs from the sockets in turn.

    A socket gives one core; if tasks have several CPUs, it gives what holds as many whole tasks as it can. Where no
    socket has room for a whole task, each gives one core again. `per_socket`: at most so many tasks on a socket, 0 for
    no limit; the first sockets that are not needed are then left alone.
    """
    left = list(sockets)
    if per_socket:
        left = _needed(left, cpus, per_socket * cpus_per_task)
    taken: list[FreeCore] = []
    whole_tasks = cpus_per_task > 1
    while cpus > 0 and any(left):
        before = cpus
        for index, free in enumerate(left):
            share = capacity([free]) // cpus_per_task * cpus_per_task if whole_tasks else 1
            given = first(free, min(share, cpus))
            left[index] = free[len(given) :]
            taken += given
            cpus -= capacity([given])
        if cpus == before:
            whole_tasks = False
    return taken


def _needed(sockets: Sequence[Socket], cpus: int, limit: int) -> list[Socket]:
    """The sockets, those emptied, from the first on, without which the rest still gives `cpus`."""
    gives = [min(capacity([socket]), limit) for socket in sockets]
    total = sum(gives)
    kept: list[Socket] = []
    for socket, share in zip(sockets, gives, strict=True):
        spare = total - share >= cpus
        total -= share if spare else 0
        kept.append(() if spare else socket)
    return kept
