"""The commands, one after the other: from values, or from a log of failed ones."""

from nodectl.client.bulk.shell import quote
from nodectl.client.command import Failed
from nodectl.messages import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nodectl.client.bulk.ahead import Ahead
    from nodectl.client.bulk.sources import Sources
    from nodectl.client.bulk.template import Template, Values

_LONGEST_SHOWN = 200  # letters of a command in a message


class Command:
    """One command: its number from 1, its line, what it was made of. The rest is what became of it: `tries`, where its
    output is and how long that is, whether it is `over`; `slot` is the number, from 1, of where it has begun; `log` is
    what its line in the log tells of how it ended; `weight` is what it weighs while the step has it; `alone`: nothing
    that it has started is left; `usage` is the line of what it has used, where that is wanted. How much of stdout and
    stderr has been printed while it ran is `shown`, how much was looked at for the ends of lines `looked`.
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
        """The number of its slot takes the place of the mark, where there is one."""
        if not mark:
            return
        slot = str(self.slot)
        self.line = self.line.replace(mark, slot)
        self.stdout = self.stdout.replace(mark, slot)
        self.stderr = self.stderr.replace(mark, slot)

    def explained(self, event: "Mapping[str, object]") -> str:
        """What the event of its end says of it that its own output does not; "" for nothing."""
        if "failed" in event:
            return f"nodectl: error: {event['failed']}: {self.words()}"
        if event.get("timed_out"):
            return f"nodectl: error: timed out: {self.words()}"
        return f"nodectl: error: Out Of Memory: {self.words()}" if event.get("out_of_memory") else ""

    def words(self) -> str:
        """In a message: values may come from files of others, and a terminal obeys what it reads."""
        return printable(self.line[:_LONGEST_SHOWN])


class Commands:
    """What `next` gives. `passed_over`: the numbers that are not run again; `passed`: how many these were."""

    def __init__(
        self, sources: "Sources", line: "Callable[[Values, int], str]", passed_over: "Callable[[int], bool] | None"
    ) -> None:
        self._sources = sources
        self._line = line
        self._passed_over = passed_over
        self._number = self.passed = 0
        self.over = False

    @property
    def fd(self) -> int:
        """What has to become readable before `read` does not wait; -1 when no more will come."""
        return self._sources.fd

    def next(self) -> Command | None:
        """The next one; None when `read` has to come first, or when they are `over`. Raises Failed."""
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
        """Reads once. Raises Failed."""
        self._sources.read()

    def ahead(self) -> "Ahead | None":
        """What reads them while they wait for their turn; None where nobody waits for that."""
        return self._sources.ahead()


class Again:
    """Commands of a log: their lines by number."""

    fd = -1
    passed = 0

    def __init__(self, lines: "Mapping[int, str]") -> None:
        self._rest: Iterator[tuple[int, str]] = iter(sorted(lines.items()))
        self.over = False

    def next(self) -> Command | None:
        """The next one; None when they are over."""
        for number, line in self._rest:
            return Command(number, line, (line,))
        self.over = True
        return None

    def read(self) -> None:
        """There is nothing to read."""

    def ahead(self) -> None:
        """They are all there."""


def line_maker(
    words: "Sequence[str]", compiled: "Callable[[str, bool], Template]", *, quoted: bool
) -> "tuple[Callable[[Values, int], str], bool]":
    """What makes the lines of a template of these words, and whether the slot's number is in them. `compiled` reads a
    template, with its values quoted or not; `quoted`: --quote.
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
