"""The commands in order: from values, or from a log of failed commands."""

from typing import TYPE_CHECKING

from nodectl.bulk.shell import quote
from nodectl.client.command import Failed
from nodectl.messages import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nodectl.bulk.ahead import Ahead
    from nodectl.bulk.sources import Sources
    from nodectl.bulk.template import Template, Values

_LONGEST_SHOWN = 200  # letters of a command in a message


class Command:
    """A command: number from 1, line, values, and progress.

    `tries` counts the runs; `stdout` and `stderr` locate the output, `sizes` hold its lengths; `over` means ended;
    `slot` is the number, from 1, of the slot of the latest run; `log` holds the end's columns for the log; `weight` is
    the weight in the step's window; `alone` means no process of the command is left; `usage` is the line of resources
    used, where wanted. `shown` is the length of stdout and stderr printed so far, `looked` the length searched for line
    ends.
    """

    __slots__ = (
        "alone", "line", "log", "looked", "number", "over", "shown", "sizes", "slot", "stderr", "stdout", "tries",
        "usage", "values", "weight",
    )  # fmt: skip

    def __init__(self, number: int, line: str, values: "Values") -> None:
        self.number = number
        self.line = line
        self.values = values
        self.tries = self.slot = 0
        self.over = self.alone = False
        self.weight = 0
        self.stdout = self.stderr = ""
        self.shown = self.looked = (0, 0)
        self.sizes: tuple[int, int] | None = None  # of a command that has ended
        self.usage = b""
        self.log: tuple[float, float, int, int, int] | None = None

    def name_slot(self, mark: str) -> None:
        """Replace the mark by the slot's number, where there is a mark."""
        if not mark:
            return
        slot = str(self.slot)
        self.line = self.line.replace(mark, slot)
        self.stdout = self.stdout.replace(mark, slot)
        self.stderr = self.stderr.replace(mark, slot)

    def explained(self, event: "Mapping[str, object]") -> str:
        """Return the message for an end which the command's output does not explain, "" for no message."""
        if "failed" in event:
            return f"nodectl: error: {event['failed']}: {self.words()}"
        if event.get("timed_out"):
            return f"nodectl: error: timed out: {self.words()}"
        return f"nodectl: error: Out Of Memory: {self.words()}" if event.get("out_of_memory") else ""

    def words(self) -> str:
        """Return the line made safe for a message.

        Values may come from other users' files, and a terminal obeys control characters.
        """
        return printable(self.line[:_LONGEST_SHOWN])


class Commands:
    """The commands made from sources. `passed_over` is True for numbers not to run again; `passed` counts these.

    `total`: the number of all commands, if known.
    """

    def __init__(
        self, sources: "Sources", line: "Callable[[Values, int], str]", passed_over: "Callable[[int], bool] | None",
        total: int | None = None,
    ) -> None:  # fmt: skip
        self._sources = sources
        self._line = line
        self._passed_over = passed_over
        self._number = self.passed = 0
        self._total = total
        self.over = False

    @property
    def count(self) -> int:
        """The number of commands so far, those passed over included."""
        return self._number

    @property
    def left(self) -> int | None:
        """The number of commands that `next` has still to return, None where unknown."""
        if self.over or self._total is None:
            return 0 if self.over else None
        return max(0, self._total - self._number)

    @property
    def fd(self) -> int:
        """The descriptor to wait for before `read`; -1 when no more will come."""
        return self._sources.fd

    def next(self) -> Command | None:
        """Return the next command; None when `read` must come first, or when `over`. Raises Failed."""
        while (values := self._sources.next()) is not None:
            self._number += 1
            if self._passed_over is None or not self._passed_over(self._number):
                line = self._line(values, self._number)
                if "\0" in line:
                    raise Failed(f"command {self._number} has a NUL byte in it; with -0 values end with one", 255)
                return Command(self._number, line, values)
            self.passed += 1
        self.over = self.fd < 0
        return None

    def read(self) -> None:
        """Read once. Raises Failed."""
        self._sources.read()

    def ahead(self) -> "Ahead | None":
        """Return the reader of commands during the wait for a turn, None where no writer waits."""
        return self._sources.ahead()


class Again:
    """The commands of a log: lines by number."""

    fd = -1
    passed = 0

    def __init__(self, lines: "Mapping[int, str]") -> None:
        self._rest: Iterator[tuple[int, str]] = iter(sorted(lines.items()))
        self.count = self.left = len(lines)
        self.over = False

    def next(self) -> Command | None:
        """Return the next command; None at the end."""
        for number, line in self._rest:
            self.left -= 1
            return Command(number, line, (line,))
        self.over = True
        return None

    def read(self) -> None:
        """Do nothing, because a log needs no further reading."""

    def ahead(self) -> None:
        """Return None, because all commands are here."""


def line_maker(
    words: "Sequence[str]", compiled: "Callable[[str, bool], Template]", *, quoted: bool
) -> "tuple[Callable[[Values, int], str], bool]":
    """Return the function which makes the lines of this template, and True if the slot's number occurs in the lines.

    `compiled` reads a template, with its values quoted or not; `quoted`: --quote.
    """
    if not words:
        template = compiled("{}", False)
        return template.line, False
    if quoted:
        templates = [compiled(word, False) for word in words]
        if not any(one.replaces or one.has_number or one.has_slot for one in templates):
            templates.append(compiled("{}", False))
        return (
            lambda values, number: " ".join([quote(one.line(values, number)) for one in templates]),
            any(one.has_slot for one in templates),
        )
    text = " ".join(words)
    template = compiled(text, True)
    if not (template.replaces or template.has_number or template.has_slot):
        template = compiled(f"{text} {{}}", True)
    return template.line, template.has_slot
