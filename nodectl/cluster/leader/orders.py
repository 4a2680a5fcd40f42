"""What a node is told to do with its part of a step, as calls of that step's own socket; `hangup` is the agent's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any

from nodectl.cluster.leader.effects import Out, SendEach
from nodectl.cluster.leader.steps import Step

HANG_UP = {"method": "hangup", "parameters": {}}
END = {"method": "End", "parameters": {}}
KILL = {"method": "Signal", "parameters": {"signal": 9}}


def way_to_end(step: Step) -> Mapping[str, Any]:
    """Output that nobody takes, as of a launch that was refused, would keep a part from being over."""
    return END if step.client is not None and not step.dropped else HANG_UP


class Orders:
    """`expected`: ranks that may have parts of an earlier leader's, and have not joined this one: they are told when
    they have.
    """

    def __init__(self, out: Out, expected: Set[int]) -> None:
        self._out = out
        self._expected = expected
        self._late: dict[int, list[tuple[Step, Mapping[str, Any]]]] = {}

    def give(self, step: Step, ranks: Collection[int], call: Mapping[str, Any]) -> None:
        """To these nodes."""
        for rank in self._expected & {*ranks}:
            self._late.setdefault(rank, []).append((step, call))
        if there := [rank for rank in ranks if rank not in self._expected]:
            common = {"job": step.job, "step": step.number, "call": call}
            self._out.effects.append(SendEach("order", common, dict.fromkeys(there)))

    def joined(self, rank: int) -> None:
        """That node is there now: of parts that are not over it hears what was said."""
        for step, call in self._late.pop(rank, ()):
            if rank in step.open_ranks:
                self.give(step, [rank], call)

    def forget(self, rank: int) -> None:
        """That node is lost."""
        self._late.pop(rank, None)
