"""--line-buffer: look for new output of running commands from time to time, and print the whole lines."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.bulk.commands import Command
    from nodectl.bulk.outputs import Outputs

_EVERY = 0.05  # seconds between two looks
_REST = 10  # times what a look took: until the next one


class Live:
    """The running commands, from the step's events."""

    def __init__(self, outputs: "Outputs", clock: "Callable[[], float]" = time.monotonic) -> None:
        self._outputs = outputs
        self._clock = clock
        self._running: dict[int, Command] = {}
        self._next = 0.0

    def begun(self, command: "Command") -> None:
        """Note that the command runs, perhaps again elsewhere, and writes all output from the start."""
        command.shown = command.looked = (0, 0)
        self._running[command.number] = command

    def over(self, command: "Command") -> None:
        """Note the command's end."""
        self._running.pop(command.number, None)

    @property
    def seconds(self) -> float | None:
        """The seconds until the next look, None when no command runs."""
        return max(0.0, self._next - self._clock()) if self._running else None

    def look(self, alone: "Command | None" = None) -> None:
        """Print the new lines, unless done recently. Raises Failed, BrokenPipeError.

        `alone`: the only command to print, where outputs have an order.
        """
        now = self._clock()
        if now < self._next:
            return
        for command in self._running.values():
            if alone in (None, command):
                self._outputs.show_lines(command)
        self._next = now + max(_EVERY, _REST * (self._clock() - now))
