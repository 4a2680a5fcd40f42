"""The options of a run: how often, how long, how fast, in which order, and until when."""

from nodectl.bulk.halt import Halt
from nodectl.bulk.median import Median


class Rules:
    """The rules of a run.

    `retries`: how often a command runs at most. `timeout`: seconds, or percent of the median with `of_median`; 0 for
    none. `delay`: seconds between beginnings. `by_line`: print lines while commands run. `slot_mark`: the mark of the
    slot's number in lines.
    """

    __slots__ = ("_median", "by_line", "delay", "halt", "in_order", "of_median", "retries", "slot_mark", "timeout")

    FEW = 3  # whose run times say nothing yet

    def __init__(
        self, *, retries: int = 1, timeout: tuple[float, bool] = (0.0, False), delay: float = 0.0,
        halt: Halt | None = None, in_order: bool = False, by_line: bool = False, slot_mark: str = "",
    ) -> None:  # fmt: skip
        self.retries = retries
        self.timeout, self.of_median = timeout
        self.delay = delay
        self.halt = halt or Halt()
        self.in_order = in_order
        self.by_line = by_line
        self.slot_mark = slot_mark
        self._median = Median()

    def took(self, seconds: float) -> None:
        """Add a command's run time."""
        if self.of_median:
            self._median.add(seconds)

    @property
    def too_few(self) -> bool:
        """Whether more run times are needed before a time limit can be computed."""
        return self.of_median and self._median.count < self.FEW

    def seconds(self) -> float:
        """Return the time limit of the next command, 0 for none."""
        if not self.of_median:
            return self.timeout
        return 0.0 if self.too_few else self._median.value() * self.timeout / 100
