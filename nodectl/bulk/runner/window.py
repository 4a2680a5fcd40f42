"""The waiting and running commands of a bulk step, limited in number and size. Pure."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nodectl.launch.stepd.bulk_commands import BulkCommand

_AHEAD = 128  # commands beyond the slots: these keep the slots busy while the client is asleep
MOST_BYTES = 1 << 20


class WindowBroken(ValueError):
    """An error of the client, which has exceeded the window; str() describes the error."""


class Window:
    """The waiting and running commands, from arrival to end, by the client's numbers."""

    __slots__ = ("_sizes", "_total", "most", "waiting")

    def __init__(self, slots: int) -> None:
        self.most = slots + _AHEAD
        self.waiting: dict[int, BulkCommand] = {}  # in the order of arrival
        self._sizes: dict[int, int] = {}  # of those that wait, and those that run
        self._total = 0

    def take(self, commands: "Iterable[BulkCommand]") -> None:
        """Add commands to the window. Raises WindowBroken."""
        for command in commands:
            if command.seq in self._sizes:
                raise WindowBroken(f"its client sent command {command.seq} twice")
            if len(self._sizes) >= self.most:
                raise WindowBroken(f"its client sent more than {self.most} commands ahead")
            if self._sizes and self._total + command.size > MOST_BYTES:
                raise WindowBroken(f"its client sent more than {MOST_BYTES} bytes of commands ahead")
            self.waiting[command.seq] = command
            self._sizes[command.seq] = command.size
            self._total += command.size

    def is_full_enough(self) -> bool:
        """Return True while the client need not be asked for more commands."""
        return 4 * len(self.waiting) > self.most

    def next(self) -> "BulkCommand":
        """Return the command waiting longest, which runs from now on."""
        return self.waiting.pop(next(iter(self.waiting)))

    def put_back(self, command: "BulkCommand") -> None:
        """Put back a command after a failed start, before all waiting commands."""
        self.waiting = {command.seq: command, **self.waiting}

    def ended(self, seq: int) -> None:
        """Remove an ended command from the window."""
        self._total -= self._sizes.pop(seq, 0)

    def withdraw(self) -> list[int]:
        """Remove all waiting commands. Returns the numbers of the removed commands."""
        numbers = list(self.waiting)
        self.waiting.clear()
        for seq in numbers:
            self.ended(seq)
        return numbers

    def facts(self) -> "Mapping[str, int]":
        """Return the limits of the window, for the client."""
        return {"window": self.most, "window_bytes": MOST_BYTES}
