"""--line-buffer: what commands that run have written is looked for again and again, and its whole lines are printed."""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.client.bulk.commands import Command
    from nodectl.client.bulk.outputs import Outputs

_EVERY = 0.05  # seconds between two looks
_REST = 10  # times what a look took: until the next one


class Live:
    """The commands that run, as the step tells."""

    def __init__(self, outputs: "Outputs", clock: "Callable[[], float]" = time.monotonic) -> None:
        self._outputs = outputs
        self._clock = clock
        self._running: dict[int, Command] = {}
        self._next = 0.0

    def begun(self, command: "Command") -> None:
        """It runs, or does so once more elsewhere: then it writes, and shows, all of it again."""
        command.shown = command.looked = (0, 0)
        self._running[command.number] = command

    def over(self, command: "Command") -> None:
        """It has ended."""
        self._running.pop(command.number, None)

    @property
    def seconds(self) -> float | None:
        """How long until it wants to look again."""
        return max(0.0, self._next - self._clock()) if self._running else None

    def look(self, alone: "Command | None" = None) -> None:
        """Prints what there is since the last time, where that is long enough ago. `alone`: whose turn it is, where
        outputs have an order. Raises Failed, BrokenPipeError.
        """
        now = self._clock()
        if now < self._next:
            return
        for command in self._running.values():
            if alone in (None, command):
                self._outputs.show_lines(command)
        self._next = now + max(_EVERY, _REST * (self._clock() - now))
