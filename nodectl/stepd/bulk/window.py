"""The commands of a bulk step that wait and those that run: never more than a window, whatever a client has. Pure."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nodectl.stepd.bulk.commands import Command

_AHEAD = 64  # commands beyond the slots: what keeps these busy while the client is asleep
MOST_BYTES = 1 << 20


class WindowBroken(ValueError):
    """The client has sent what it must not send; str() says what."""


class Window:
    """Numbers are the client's. A command is in it from its coming to its end."""

    __slots__ = ("_sizes", "_total", "most", "waiting")

    def __init__(self, slots: int) -> None:
        self.most = slots + _AHEAD
        self.waiting: dict[int, Command] = {}  # in the order of their coming
        self._sizes: dict[int, int] = {}  # of those that wait, and those that run
        self._total = 0

    def take(self, commands: "Iterable[Command]") -> None:
        """They wait now. Raises WindowBroken."""
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
        """True while the client need not be asked for more."""
        return 4 * len(self.waiting) > self.most

    def next(self) -> "Command":
        """The one that waits longest; it runs now."""
        return self.waiting.pop(next(iter(self.waiting)))

    def put_back(self, command: "Command") -> None:
        """It could not begin, and goes on waiting before all others."""
        self.waiting = {command.seq: command, **self.waiting}

    def ended(self, seq: int) -> None:
        """It is the window's no longer."""
        self._total -= self._sizes.pop(seq, 0)

    def withdraw(self) -> list[int]:
        """Forgets those that wait; their numbers."""
        numbers = list(self.waiting)
        self.waiting.clear()
        for seq in numbers:
            self.ended(seq)
        return numbers

    def facts(self) -> "Mapping[str, int]":
        """What a client has to know of it."""
        return {"window": self.most, "window_bytes": MOST_BYTES}
