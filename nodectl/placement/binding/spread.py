"""The distribution of tasks over nodes: the number of tasks of each node, and the tasks' numbers."""

from __future__ import annotations

from collections.abc import Sequence


def evenly(slots: Sequence[int], ntasks: int) -> list[int]:
    """Give a task to each node in turn, as long as the node has slots left; after the last slot, to all nodes again."""
    counts = [0] * len(slots)
    left = ntasks
    turn = 0
    most = max(slots)
    while left:
        for node, slot in enumerate(slots):
            if left and (turn < slot or turn >= most):
                counts[node] += 1
                left -= 1
        turn += 1
    return counts


def packed(slots: Sequence[int], ntasks: int) -> list[int]:
    """Give a task to each node, then fill each node up in turn. Spread the remaining tasks evenly."""
    counts = [min(1, max(ntasks - node, 0)) for node in range(len(slots))]
    left = ntasks - sum(counts)
    for node, slot in enumerate(slots):
        more = min(max(slot - counts[node], 0), left)
        counts[node] += more
        left -= more
    for extra in range(left):
        counts[extra % len(slots)] += 1
    return counts


def planes(slots: Sequence[int], ntasks: int, size: int) -> list[int]:
    """Give a task to each node, then `size` tasks to each in turn while slots are left.

    The first task counts in the first turn.
    """
    counts = [min(1, max(ntasks - node, 0)) for node in range(len(slots))]
    left = ntasks - sum(counts)
    turn = 1
    while left:
        full = all(count >= slot for count, slot in zip(counts, slots, strict=True))
        for node, slot in enumerate(slots):
            # A plane that has begun is not cut where the node's slots end; with overcommit, whole planes go beyond.
            rest = size if full else max(turn * size - counts[node], 0)
            more = min(left, rest) if full or counts[node] < slot else 0
            counts[node] += more
            left -= more
        turn += 1
    return counts


def consecutive(counts: Sequence[int]) -> list[list[int]]:
    """Return the numbers of the tasks of each node, node after node."""
    numbers, first = [], 0
    for count in counts:
        numbers.append(list(range(first, first + count)))
        first += count
    return numbers


def in_turn(counts: Sequence[int], size: int = 1) -> list[list[int]]:
    """Return the numbers of the tasks of each node, `size` to a node in turn."""
    numbers: list[list[int]] = [[] for _ in counts]
    total, next_number = sum(counts), 0
    while next_number < total:
        for node, count in enumerate(counts):
            more = min(size, count - len(numbers[node]))
            numbers[node] += range(next_number, next_number + more)
            next_number += more
    return numbers


def tasks_per_node(counts: Sequence[int]) -> str:
    """Return the counts in the form of SLURM_TASKS_PER_NODE: `3,2(x3)`."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else f"{count}" for count, times in runs)
