"""The lines of the table, and how their figures are taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


class Row:
    """One line of the table. `ratio` is ours to the peer's; `goal` what it is to be at most (at least, if `more`).
    Without a goal the row is only to be read.
    """

    def __init__(
        self, what: str, ours: float, peer: float, unit: str, goal: float | None = None, *, more: bool = False
    ) -> None:
        self.what = what
        self.ours = ours
        self.peer = peer
        self.unit = unit
        self.goal = goal
        self.more = more
        self.ratio = ours / peer if peer else ours

    @property
    def met(self) -> bool:
        if self.goal is None:
            return True
        return self.ratio >= self.goal if self.more else self.ratio <= self.goal

    def as_json(self) -> dict[str, object]:
        return {
            "what": self.what,
            "ours": self.ours,
            "peer": self.peer,
            "unit": self.unit,
            "ratio": self.ratio,
            "goal": self.goal,
            "more": self.more,
            "met": self.met,
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Row:
        """Of what `as_json` has made."""
        return cls(*(told[name] for name in ("what", "ours", "peer", "unit", "goal")), more=told["more"])


def show(rows: list[Row]) -> None:
    """Prints the table, for people."""
    print(f"{'what':52} {'ours':>10} {'peer':>10} {'ratio':>8} {'goal':>8}")
    for row in rows:
        scale, unit = (1000, "ms") if row.unit == "s" else (1, row.unit)
        peer = f"{row.peer * scale:.2f}" if row.peer else "-"
        goal = "-" if row.goal is None else f"{'>=' if row.more else '<='}{row.goal:>6g}"
        mark = "" if row.met else "  missed"
        print(f"{row.what:52} {row.ours * scale:>8.2f} {unit:4}{peer:>8} {row.ratio:>8.2f} {goal:>8}{mark}")


def in_turns(rounds: int, **work: Callable[[], object]) -> dict[str, float]:
    """Seconds each piece of work takes: the mean of the best quarter of `rounds` in which each has its turn, after one
    that does not count. The worse ones tell of what else the machine did.

    The order rotates, because whoever follows a heavy neighbour finds the caches cold.
    """
    taken: dict[str, list[float]] = {name: [] for name in work}
    order = list(work.items())
    for turn in range(rounds + 1):
        order.append(order.pop(0))
        for name, do in order:
            start = time.perf_counter()
            do()
            if turn:
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.mean(sorted(values)[: max(1, rounds // 4)]) for name, values in taken.items()}
