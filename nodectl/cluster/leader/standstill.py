"""Suspending and resuming steps: each on all of the step's nodes, or on none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodectl.cluster.leader.books import Books
from nodectl.cluster.leader.steps import Caller, Step
from nodectl.model.wire.dispatch import Refused

_OVER = "NoSuchStep"  # a part that has just ended is no reason to fail


class _Order:
    """Suspend or Resume, sent to all nodes of some steps.

    `left`: numbers of the requests without an answer yet; `running`: processes that could not be stopped. `call` is
    None where no caller waits for the result.
    """

    def __init__(self, call: Caller | None, method: str, steps: Sequence[Step]) -> None:
        self.call = call
        self.method = method
        self.steps = steps
        self.left: set[int] = set()
        self.running: list[int] = []
        self.refused: Mapping[str, Any] | None = None


class Standstill:
    """The suspend and resume requests of a leader.

    `ask(rank, call, method, parameters)` asks a node, and returns a number for the answer.
    """

    def __init__(self, books: Books, ask: Callable[[int, Caller, str, Mapping[str, Any]], int]) -> None:
        self._books = books
        self._ask = ask
        self._orders: dict[int, _Order] = {}
        self._busy: set[int] = set()  # numbers of steps with a pending order

    def suspend(self, call: Caller, steps: Sequence[Step]) -> None:
        """Suspend the steps; reply when all have stopped. Raises Refused."""
        for step in steps:
            if step.suspended:
                raise Refused("WrongState", f"step {step.name} is suspended already")
            if step.unbegun or step.ending:
                raise Refused("WrongState", f"step {step.name} {'is about to end' if step.ending else 'has not begun'}")
        self._begin(_Order(call, "Suspend", steps))

    def resume(self, call: Caller, steps: Sequence[Step]) -> None:
        """Resume the steps. Raises Refused."""
        for step in steps:
            if not step.suspended:
                raise Refused("WrongState", f"step {step.name} is not suspended")
        self._begin(_Order(call, "Resume", steps))

    def _begin(self, order: _Order) -> None:
        for step in order.steps:
            if step.number in self._busy:
                raise Refused("WrongState", f"step {step.name} is being suspended or resumed")
        self._send(order)

    def _send(self, order: _Order) -> None:
        self._busy.update(step.number for step in order.steps)
        for step in order.steps:
            for rank in step.open_ranks:
                try:
                    number = self._ask(rank, order.call or (rank, 0), order.method, _name(step))
                except Refused:
                    continue  # the node is gone, and its parts with it
                order.left.add(number)
                self._orders[number] = order
        if not order.left:
            self._finish(order)

    def awaits(self, number: int) -> bool:
        """Return whether the request with this number was sent from here, even after a disconnect of the caller."""
        return number in self._orders

    def answered(self, number: int, header: Mapping[str, Any]) -> bool:
        """Take a node's answer. Return False for the number of a different request."""
        order = self._orders.pop(number, None)
        if order is None:
            return False
        order.left.discard(number)
        error = str(header.get("error", ""))
        if not error:
            order.running += (header.get("parameters") or {}).get("running") or ()
        elif error.rpartition(".")[2] != _OVER:
            order.refused = order.refused or header
        if not order.left:
            self._finish(order)
        return True

    def _finish(self, order: _Order) -> None:
        self._busy.difference_update(step.number for step in order.steps)
        if order.refused is not None and order.method == "Suspend":
            # On all nodes: if a node's first answer was lost with a link, its second one says that it was done already.
            self._send(_Order(None, "Resume", order.steps))
        elif order.refused is None:
            for step in order.steps:
                step.suspended = order.method == "Suspend"
                if step.number in self._books.life.steps:
                    self._books.out.keep({"e": "step", **step.as_json()})
        if order.call is None:
            return
        if order.refused is not None:
            told = {name: order.refused[name] for name in ("error", "parameters") if name in order.refused}
            self._books.answer(order.call, told)
        else:
            self._books.reply(order.call, {"running": order.running} if order.method == "Suspend" else {})


def _name(step: Step) -> Mapping[str, int]:
    return {"job": step.job, "step": step.number}
