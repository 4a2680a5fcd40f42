"""Orders to nodes for parts of a step, as calls of the step's own socket; `hangup` is the agent's own call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any

from nodectl.cluster.leader.effects import Out, SendEach
from nodectl.cluster.leader.steps import Caller, Step

HANG_UP = {"method": "hangup", "parameters": {}}
END = {"method": "End", "parameters": {}}
KILL = {"method": "Signal", "parameters": {"signal": 9}}


def way_to_end(step: Step) -> Mapping[str, Any]:
    """Return the call for ending a part of the step.

    HANG_UP where no client reads the output, as of a launch that was refused: unread output would keep the part from
    ending.
    """
    return END if step.client is not None and not step.dropped else HANG_UP


class Orders:
    """The orders given by a leader.

    `expected`: ranks that have not joined this leader and may have parts of an earlier one: they get their orders when
    they join. Until then the caller who gave an order gets no answer, and repeats the order to the next leader should
    this one die.
    """

    def __init__(self, out: Out, expected: Set[int]) -> None:
        self._out = out
        self._expected = expected
        self._late: dict[int, list[tuple[Step, Mapping[str, Any], Caller | None]]] = {}
        self._unanswered: dict[Caller, set[int]] = {}  # by caller: the ranks still to join

    def give(self, step: Step, ranks: Collection[int], call: Mapping[str, Any], by: Caller | None = None) -> None:
        """Send a call to the given nodes.

        `by`: the caller who repeats the order to the next leader, should this one die; a part carries it out once.
        """
        for rank in self._expected & {*ranks}:
            self._late.setdefault(rank, []).append((step, call, by))
        if there := [rank for rank in ranks if rank not in self._expected]:
            common = {"job": step.job, "step": step.number, "call": call, **({} if by is None else {"by": by})}
            self._out.effects.append(SendEach("order", common, dict.fromkeys(there)))

    def answer(self, caller: Caller, step: Step | None) -> None:
        """Confirm the order just given, as soon as all nodes of the order have joined."""
        if late := {*(step.open_ranks if step is not None else ())} & self._expected:
            self._unanswered[caller] = late
        else:
            self.answer_again(caller)

    def answer_again(self, caller: Caller) -> None:
        """Confirm a repeated order, unless nodes are still missing."""
        if caller not in self._unanswered:
            self._out.send(caller[0], "ordered", id=caller[1])

    def joined(self, rank: int) -> None:
        """Send a joined node the orders for parts still running there."""
        for step, call, by in self._late.pop(rank, ()):
            if rank in step.open_ranks:
                self.give(step, [rank], call, by)
        self._is_no_longer_awaited(rank)

    def forget(self, rank: int) -> None:
        """Drop the orders for a lost node."""
        self._late.pop(rank, None)
        self._is_no_longer_awaited(rank)

    def _is_no_longer_awaited(self, rank: int) -> None:
        for caller, late in list(self._unanswered.items()):
            late.discard(rank)
            if not late:
                del self._unanswered[caller]
                self.answer_again(caller)
