"""The choice of a node's cores for a job's number of CPUs: whole cores, socket by socket or in turn.

These are the rules of Slurm's cons_tres, whose unit of allocation is the core. Sets of cores are ints; `sockets` are
the free cores of each socket of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from nodectl.selection.tres.shape import Grid, lowest

# Beyond this many boards the best set of them is not looked for.
_MAX_BOARDS = 8


def block(grid: Grid, sockets: Sequence[int], cpus: int) -> int:
    """Take cores for `cpus` CPUs from as few boards and then sockets as possible.

    Of equal sets of boards the last is taken. Inside, the smallest socket sufficient for the rest goes first, or else
    the largest.
    """
    left = _boards(grid, sockets, cpus)
    taken = 0
    while cpus > 0 and left:
        fitting = [free for free in left if grid.cpus(free) >= cpus]
        best = min(fitting, key=int.bit_count) if fitting else max(left, key=int.bit_count)
        left.remove(best)  # no two sockets have a core in common
        taken |= grid.first(best, cpus)
        cpus -= grid.cpus(best)
    return taken


def _boards(grid: Grid, sockets: Sequence[int], cpus: int) -> list[int]:
    """Return the sockets of the best set of boards for `cpus` CPUs."""
    boards = [[sockets[number] for number in board if sockets[number]] for board in grid.boards]
    if 1 < len(boards) <= _MAX_BOARDS:
        for count in range(1, len(boards)):
            sets = [[socket for board in chosen for socket in board] for chosen in combinations(boards, count)]
            able = [inside for inside in sets if sum(map(grid.cpus, inside)) >= cpus]
            if able:
                return min(
                    reversed(able), key=lambda inside: (_fewest(grid, inside, cpus), sum(map(grid.cpus, inside)))
                )
    return [socket for board in boards for socket in board]


def _fewest(grid: Grid, sockets: Sequence[int], cpus: int) -> int:
    """Return the least number of sockets needed for `cpus` CPUs."""
    for count, size in enumerate(sorted(map(grid.cpus, sockets), reverse=True), 1):
        cpus -= size
        if cpus <= 0:
            return count
    return len(sockets)


def cyclic(grid: Grid, sockets: Sequence[int], cpus: int, *, cpus_per_task: int, per_socket: int) -> int:
    """Take cores for `cpus` CPUs from the sockets in turn.

    A socket gives one core; if tasks have several CPUs, it gives cores for as many whole tasks as it can. Where no
    socket has room for a whole task, each gives one core again. `per_socket`: at most so many tasks on a socket, 0 for
    no limit; the first sockets that are not needed are then left alone.
    """
    left = list(sockets)
    if per_socket:
        left = _needed(grid, left, cpus, per_socket * cpus_per_task)
    every = sum(left)  # no two have a core in common
    if grid.width and grid.cpus(every) <= cpus:
        return every
    taken = 0
    whole_tasks = cpus_per_task > 1
    while cpus > 0 and any(left):
        if grid.width and not whole_tasks:
            return taken | _in_turn(left, -(-cpus // grid.width))
        before = cpus
        for index, free in enumerate(left):
            if not free or cpus <= 0:
                continue
            share = grid.cpus(free) // cpus_per_task * cpus_per_task if whole_tasks else 1
            given = grid.first(free, min(share, cpus))
            left[index] = free ^ given
            taken |= given
            cpus -= grid.cpus(given)
        if cpus == before:
            whole_tasks = False
    return taken


def _in_turn(sockets: Sequence[int], count: int) -> int:
    """Return `count` cores, a core from each socket in turn; all cores where there are fewer."""
    there = [socket.bit_count() for socket in sockets]
    if sum(there) <= count:
        return sum(sockets)
    given = [0] * len(there)
    while count:
        # As many rounds at once as the smallest socket that has some left can take part in.
        left = [number for number, cores in enumerate(there) if cores > given[number]]
        rounds = min(*(there[number] - given[number] for number in left), count // len(left))
        for number in left if rounds else left[:count]:
            given[number] += rounds or 1
        count -= rounds * len(left) if rounds else count
    taken = 0
    for socket, cores in zip(sockets, given, strict=True):
        taken |= lowest(socket, cores)
    return taken


def _needed(grid: Grid, sockets: Sequence[int], cpus: int, limit: int) -> list[int]:
    """Return the sockets, with leading sockets emptied as long as the rest still gives `cpus` CPUs."""
    gives = [min(grid.cpus(socket), limit) for socket in sockets]
    total = sum(gives)
    kept = []
    for socket, share in zip(sockets, gives, strict=True):
        spare = total - share >= cpus
        total -= share if spare else 0
        kept.append(0 if spare else socket)
    return kept
