"""The part of a step on this node: a step over several nodes numbers all tasks together.

The daemon receives it (`daemon/admission/part.py`) and writes it into the step's file; stepd and tasks read it there.
Lean: a step on one node does not import this module. Pure.
"""

from nodectl.model.number import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELDS = ("nodes", "nnodes", "nodeid", "ntasks", "tasks", "tasks_per_node")


class Part:
    """The part of a step on this node.

    `nodes`: the nodes of the whole step, as a host list; `nnodes`: how many there are; `nodeid`: the number of this
    node among them. `ntasks`: the tasks of the whole step; `tasks`: the numbers of the tasks here in it, ascending, as
    "0-3,8" and as `numbers`. `tasks_per_node`: as "2(x3),1". `exchange`: the socket by which the parts' MPI servers
    reach each other, "" for none.
    """

    __slots__ = (*_FIELDS, "exchange", "numbers")

    nodes: str
    nnodes: int
    nodeid: int
    ntasks: int
    tasks: str
    tasks_per_node: str
    exchange: str
    numbers: list[int]

    def __init__(self, values: "Mapping[str, object]") -> None:
        """Read the part's fields and ignore unknown values. Raises KeyError, ValueError."""
        for name in _FIELDS:
            setattr(self, name, values[name])
        self.exchange = str(values.get("exchange", ""))
        self.numbers = numbers_of(self.tasks, self.ntasks, self.ntasks)

    def facts(self) -> "dict[str, object]":
        """Return the part's facts for records."""
        return {name: getattr(self, name) for name in _FIELDS}

    def as_json(self) -> "dict[str, object]":
        """Return every field under its name."""
        return {**self.facts(), "exchange": self.exchange}


def numbers_of(text: str, most: int, ntasks: int) -> list[int]:
    """Return the numbers of a list: below `ntasks`, ascending, each once, at most `most`. Raises ValueError."""
    found: list[int] = []
    latest = -1
    for word in text.split(","):
        first, dash, last = word.partition("-")
        low, high = whole(first, ntasks - 1), whole(last if dash else first, ntasks - 1)
        if low is None or high is None:
            raise ValueError(f"{word[:40]!r} is no number and no range below {ntasks}")
        if not latest < low <= high:
            raise ValueError(f"{word[:40]!r} is not behind what is before it")
        if high - low >= most - len(found):
            raise ValueError(f"they are more than {most}")
        found += range(low, high + 1)
        latest = high
    return found
