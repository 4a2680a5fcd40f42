"""The nodes' tasks in a step, as exchanged by the PMIx servers of all nodes at the step's start."""

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
    """The step's nodes: each node's name and task numbers, and the library's `namespace` for the tasks of all nodes."""

    def __init__(self, names: "Sequence[str]", tasks: "Sequence[Sequence[int]]", namespace: str) -> None:
        """Check and index the tasks. Raises ValueError unless the numbers are 0, 1, 2, ... without a gap."""
        self.names = names
        self.tasks = tasks
        self.namespace = namespace
        self._nodes = {task: node for node, them in enumerate(tasks) for task in them}
        self.size = sum(map(len, tasks))
        if self._nodes.keys() != set(range(self.size)):
            raise ValueError("a task is at no node, or at two")

    def node_of(self, task: int) -> "int | None":
        """Return the node of a task, None where there is no such task."""
        return self._nodes.get(task)


def here(given: Given) -> bytes:
    """Return this node's line for the remote nodes. All nodes use node 0's namespace, random and secret."""
    namespace = f"nodectl-{given.job}-{os.urandom(_RANDOM).hex()}"
    return f"{given.listed} {name_of(given)} {namespace}\n".encode("ascii")


def name_of(given: Given) -> str:
    """Return the name of this node in a form accepted by the library."""
    return given.node_name if _is_name(given.node_name) else f"node{given.node}"


def _is_name(word: str) -> bool:
    return 0 < len(word) <= _LONGEST_NAME and _OF_NAMES.issuperset(word)


def of_all(given: Given, said: bytes) -> Places:
    """Parse the lines of all nodes, in the order of nodes. Raises Apart for malformed lines."""
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
