"""The resource usage of running steps, asked of all nodes.

A late node counts with its previous answer; the late answer counts in the next reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nodectl.cluster.leader.books import Books
from nodectl.cluster.leader.steps import OVER, Caller, Step
from nodectl.model.wire.dispatch import Refused

_SECONDS = 0.5  # for a node to answer
_COUNTED = ("cpu_seconds", "read", "written")  # from a part's beginning on
_PRESSURE = ("cpu", "memory", "io")


class Usages:
    """The usage requests of a leader.

    `ask(rank, call, method, parameters)` asks a node, and returns a number for the answer; `leave` detaches such a
    number from its caller, once no caller waits for the answer.
    """

    def __init__(
        self, books: Books, ask: Callable[[int, Caller, str, Mapping[str, Any]], int], leave: Callable[[int], None]
    ) -> None:
        self._books = books
        self._ask = ask
        self._leave = leave
        self._callers: list[Caller] = []
        self._left: dict[int, int] = {}  # nodes that have not answered, by the number of the request
        self._late: dict[int, int] = {}  # late nodes, by the number of the request; they are not asked again meanwhile
        self._until = 0.0
        self._said: dict[tuple[int, int], Mapping[str, Any]] = {}  # the latest answer by step and node

    def tell(self, call: Caller) -> None:
        """Reply to a call soon. Each node is asked once, however many callers wait."""
        if call not in self._callers:
            self._callers.append(call)
        if self._left:
            return
        self._until = self._books.now + _SECONDS
        ranks = {rank for step in self._books.life.steps.values() for rank in step.open_ranks}
        for rank in ranks.difference(self._late.values()):
            try:
                self._left[self._ask(rank, call, "Usage", {})] = rank
            except Refused:
                continue  # the node is gone
        if not self._left:
            self._finish()

    def awaits(self, number: int) -> bool:
        """Return whether the request with this number was sent from here."""
        return number in self._left or number in self._late

    def answered(self, number: int, header: Mapping[str, Any]) -> bool:
        """Take a node's answer. Return False for the number of a different request."""
        is_late = number in self._late
        rank = (self._late if is_late else self._left).pop(number, None)
        if rank is None:
            return False
        for row in (header.get("parameters") or {}).get("steps") or ():
            if row["job"] == self._books.job:
                self._said[int(row["step"]), rank] = row
        if not self._left and not is_late:
            self._finish()
        return True

    def deadline(self) -> float | None:
        """Return the time at which callers stop waiting; None for no wait."""
        return self._until if self._left else None

    def tick(self, now: float) -> None:
        """Reply without the late nodes once the time is up."""
        if self._left and now >= self._until:
            for number in self._left:
                self._leave(number)
            self._late.update(self._left)
            self._left.clear()
            self._finish()

    def _finish(self) -> None:
        steps = self._books.life.steps
        self._said = {key: row for key, row in self._said.items() if key[0] in steps}
        rows = [self._sum(step) for step in steps.values()]
        callers, self._callers = self._callers, []
        for call in callers:
            self._books.reply(call, {"steps": rows})

    def _sum(self, step: Step) -> Mapping[str, object]:
        said = {rank: self._said[step.number, rank] for rank in step.parts if (step.number, rank) in self._said}
        there = [row for rank, row in said.items() if step.parts[rank].state != OVER]
        shares = [(name, row["pressure"].get(name)) for row in there for name in _PRESSURE]
        return {
            "job": step.job,
            "step": step.number,
            **{name: _total([row[name] for row in said.values()]) for name in _COUNTED},
            "memory": _total([row["memory"] for row in there]),
            "pressure": {name: share for name, share in sorted(shares, key=_share) if share is not None},
        }


def _share(one: tuple[str, float | None]) -> float:
    return one[1] or 0.0  # the highest comes last, and counts


def _total(numbers: list[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
