"""Which tasks each node of a step has, as the PMIx servers of all nodes tell each other at its beginning."""

import os

from nodectl.model.part import numbers_of
from nodectl.mpi.others import Apart
from nodectl.mpi.words import Given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_RANDOM = 16  # bytes
_LONGEST_NAME = 255
_OF_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class Places:
    """`tasks`: the numbers of those of each node, `names`: its name. `namespace`: the name by which the library knows
    the tasks of all of them.
    """

    def __init__(self, names: "Sequence[str]", tasks: "Sequence[Sequence[int]]", namespace: str) -> None:
        """Raises ValueError where the tasks are not those from 0 on."""
        self.names = names
        self.tasks = tasks
        self.namespace = namespace
        self._nodes = {task: node for node, them in enumerate(tasks) for task in them}
        self.size = sum(map(len, tasks))
        if self._nodes.keys() != set(range(self.size)):
            raise ValueError("a task is at no node, or at two")

    def node_of(self, task: int) -> "int | None":
        """Which node has it, None for no task."""
        return self._nodes.get(task)


def here(given: Given) -> bytes:
    """What this node tells the others. All of them take the namespace of node 0, which nobody else can guess."""
    namespace = f"nodectl-{given.job}-{os.urandom(_RANDOM).hex()}"
    return f"{given.listed} {name_of(given)} {namespace}\n".encode("ascii")


def name_of(given: Given) -> str:
    """The name of this node, as the library can have it."""
    return given.node_name if _is_name(given.node_name) else f"node{given.node}"


def _is_name(word: str) -> bool:
    return 0 < len(word) <= _LONGEST_NAME and _OF_NAMES.issuperset(word)


def of_all(given: Given, said: bytes) -> Places:
    """What all nodes have told, in their order. Raises Apart for what no server of a step tells."""
    try:
        rows = [line.split(" ") for line in said.decode("ascii").splitlines()]
        tasks = [numbers_of(listed, given.size, given.size) for listed, _, _ in rows]
        places = Places([name for _, name, _ in rows], tasks, rows[0][2])
        fits = len(rows) == given.nodes and places.size == given.size and tasks[given.node] == given.numbers
    except (ValueError, IndexError):
        raise Apart from None
    if not fits or not all(map(_is_name, [*places.names, places.namespace])):
        raise Apart
    return places
