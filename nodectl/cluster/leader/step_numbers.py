"""Numbers of steps: each is given once, whoever dies. The journal has a block of them before one is used."""

from __future__ import annotations

from collections import OrderedDict

from nodectl.cluster.leader.effects import Out
from nodectl.wire.dispatch import Refused, invalid

_BLOCK = 1000
_MOST_RESERVED = 4096


class Numbers:
    """`next` is the one that is given next; those before `kept` are in the journal."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self.next = self.kept = 0
        self.before = 0  # an earlier leader may have reserved what is below this
        self._reserved: OrderedDict[int, None] = OrderedDict()

    def draw(self) -> int:
        """A number that no step has or had."""
        if self.next >= self.kept:
            self.kept = self.next + _BLOCK
            self._out.keep({"e": "numbers", "kept": self.kept}, durable=True)
        number, self.next = self.next, self.next + 1
        return number

    def seen(self, number: int) -> None:
        """A node has a step of this number: a journal was lost."""
        if number >= self.next:
            self.next = number + 1

    def reserve(self) -> int:
        """For a client that must know it before it launches; never 0, by which such a client means a new job's."""
        number = self.draw() or self.draw()
        self._reserved[number] = None
        while len(self._reserved) > _MOST_RESERVED:
            self._reserved.popitem(last=False)
        return number

    def check(self, numbers: tuple[int, int], job: int) -> None:
        """Raises Refused for those of another job, and for a step that was not reserved."""
        of_job, step = numbers
        if of_job not in (-1, job):
            raise Refused(
                "NoSuchStep", f"no job {of_job} is running: this is job {job}", exit_status=1, subject="unknown"
            )
        if step >= self.before and step not in self._reserved:
            raise invalid("step", f"{job}.{step} was not reserved by you")

    def take(self, numbers: tuple[int, int]) -> int:
        """The one that was reserved, or a new one."""
        step = numbers[1]
        if step in self._reserved or 0 <= step < self.before:
            self._reserved.pop(step, None)
            return step
        return self.draw()
