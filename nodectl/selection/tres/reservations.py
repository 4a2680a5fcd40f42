"""The choice of nodes and cores for an advanced reservation."""

from __future__ import annotations

from itertools import islice

from bitarray import bitarray

from nodectl.selection.records import ReservationRequest
from nodectl.selection.tres.question import end_of
from nodectl.selection.tres.state import State
from nodectl.selection.tres.use import Use

IGNORE_JOBS = "IGNORE_JOBS"


def reserve(
    state: State, request: ReservationRequest, count: int, available: bitarray, taken: bitarray | None, now: float
) -> tuple[bitarray, bitarray] | None:
    """Choose nodes and cores out of the `available` nodes without the `taken` cores; None for too few.

    Chosen are cores left by jobs when the reservation begins; with the flag IGNORE_JOBS also cores in use.
    """
    ignores = IGNORE_JOBS in {flag.upper() for flag in request.flags}
    busy = state.idle if ignores else _uses_at(state, request.start_time, now)
    named = {name for name in request.node_list.split(",") if name}
    table = state.table
    fitting: list[tuple[int, int]] = []
    for index in available.search(1):
        use = busy[index]
        free = use.shape.usable & ~use.busy
        if taken is not None:
            free &= ~state.cores_of(taken, index)
        whole = free == use.shape.usable != 0
        serves = free.bit_count() >= request.core_cnt if request.core_cnt else whole
        if serves and (not named or table[index].name in named):
            fitting.append((index, free))
            if len(fitting) == count:
                break
    if len(fitting) < count:
        return None
    cores = table.core_bitmap()
    for index, free in fitting:
        at = table[index].core_offset
        numbers = (number for number in range(free.bit_length()) if free >> number & 1)
        for number in islice(numbers, request.core_cnt or None):
            cores[at + number] = 1
    return table.bitmap(index for index, _ in fitting), cores


def _uses_at(state: State, start: float, now: float) -> list[Use]:
    """Return the uses of the nodes at the time `start`."""
    ended = [held for held in state.held.values() if end_of(held.job, now) <= start]
    return state.without(state.uses, ended)
