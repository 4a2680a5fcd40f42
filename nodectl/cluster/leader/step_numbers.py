"""Numbers of steps: each is given once, even across a leader's death.

The journal has a block of numbers before the first of them is used.
"""

from __future__ import annotations

from collections import OrderedDict

from nodectl.cluster.leader.effects import Out
from nodectl.model.wire.dispatch import Refused, invalid

_BLOCK = 1000
_MOST_RESERVED = 4096


class Numbers:
    """The step numbers of a cluster.

    `next` is the number given next; those before `kept` are in the journal.
    """

    def __init__(self, out: Out) -> None:
        self._out = out
        self.next = self.kept = 0
        self.before = 0  # an earlier leader may have reserved numbers below this
        self._reserved: OrderedDict[int, None] = OrderedDict()

    def draw(self) -> int:
        """Return a number never used by a step."""
        if self.next >= self.kept:
            self.kept = self.next + _BLOCK
            self._out.keep({"e": "numbers", "kept": self.kept}, durable=True)
        number, self.next = self.next, self.next + 1
        return number

    def seen(self, number: int) -> None:
        """Skip a number in use on a node, which may be new to this leader where a journal was lost."""
        if number >= self.next:
            self.next = number + 1

    def reserve(self) -> int:
        """Reserve a number for a client which needs the number before the launch.

        The number is never 0: such a client takes 0 as a new job's.
        """
        number = self.draw() or self.draw()
        self._reserved[number] = None
        while len(self._reserved) > _MOST_RESERVED:
            self._reserved.popitem(last=False)
        return number

    def check(self, numbers: tuple[int, int], job: int) -> None:
        """Raise Refused for numbers of a different job, and for a step never reserved."""
        of_job, step = numbers
        if of_job not in (-1, job):
            raise Refused(
                "NoSuchStep", f"no job {of_job} is running: this is job {job}", exit_status=1, subject="unknown"
            )
        if step >= self.before and step not in self._reserved:
            raise invalid("step", f"{job}.{step} was not reserved by you")

    def take(self, numbers: tuple[int, int]) -> int:
        """Return the reserved number, or a new number."""
        step = numbers[1]
        if step in self._reserved or 0 <= step < self.before:
            self._reserved.pop(step, None)
            return step
        return self.draw()
