"""The words common to the programs of a step's tasks, stored once in the stepd's memory instead of once for each task.

A user may have megabytes of environment, and hold hundreds of tasks before their programs.
"""

from nodectl.kernel import operations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nodectl.kernel.operations import Operation

_MOST = 8  # ways in which tasks of a step may differ from the common words


class CommonWords:
    """The operations with common words. `variables` is the result of `environment.for_tasks`."""

    __slots__ = ("_argv", "_execution", "_made", "_program", "_variables", "_words")

    def __init__(self, variables: "Mapping[str, str]") -> None:
        self._variables = variables
        self._made: dict[tuple[str, ...], Operation] = {}  # by the common variables left out
        self._argv: list[str] = []
        self._words: Operation | None = None
        self._program: tuple[str | None, ...] = ()
        self._execution: Operation | None = None

    def environment(self, wanted: "Mapping[str, str]") -> "list[Operation]":
        """Return the operations for a task's environment, common variables and the task's own. Raises ValueError."""
        common = self._variables
        own = {name: value for name, value in wanted.items() if common.get(name) is not value}
        left_out: tuple[str, ...] = ()
        if len(wanted) - len(own) < len(common):
            left_out = tuple([name for name, value in common.items() if wanted.get(name) is not value])
        shared = self._made.get(left_out)
        if shared is None:
            if len(self._made) >= _MOST:
                self._made.clear()
            without = set(left_out)
            kept = {name: common[name] for name in common if name not in without} if without else common
            shared = operations.environment(kept)
            self._made[left_out] = shared
        return [shared, operations.environment(own)]

    def argv(self, argv: list[str]) -> "Operation":
        """Return the operation for the program's argv. Raises ValueError."""
        if self._words is None or argv != self._argv:
            self._argv, self._words = argv, operations.argv(argv)
        return self._words

    def execution(self, name: str, path: "str | None", make: "Callable[[str, str | None], Operation]") -> "Operation":
        """Return the operation executing this program, searched for in this PATH. Raises ValueError."""
        if self._execution is None or self._program != (name, path):
            self._program, self._execution = (name, path), make(name, path)
        return self._execution
