"""The leader's whole state and the replies to callers: shared by core, calls and restoring."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodectl.cluster.leader.chooser import Chooser
from nodectl.cluster.leader.effects import Out
from nodectl.cluster.leader.history import History
from nodectl.cluster.leader.life import Life
from nodectl.cluster.leader.line import Line
from nodectl.cluster.leader.placing import Table
from nodectl.cluster.leader.step_numbers import Numbers
from nodectl.cluster.leader.steps import Caller
from nodectl.model.wire.dispatch import Refused, error_reply
from nodectl.placement.binding.request import Settings

_MOST_REMEMBERED = 4096


class Books:
    """The leader's state.

    `names` of all nodes by rank; `now`: the time of the present event; `expected`: ranks that have not joined yet and
    may still: launches that do not fit wait for them. `on_free` is called when a step has released its nodes.
    """

    def __init__(
        self, job: int, names: Sequence[str], now: float, owner: Mapping[str, Any], settings: Settings | None,
        on_free: Callable[[], None], chooser: Chooser | None = None,
    ) -> None:  # fmt: skip
        self.job = job
        self.names = names
        self.now = now
        self.expected = set(range(len(names)))
        self.steps_by: dict[int, str] = {}  # by rank, in words: the daemon that runs steps there
        self.table = Table(settings, chooser)
        self.out = Out()
        self.history = History()
        self.line = Line()
        self.numbers = Numbers(self.out)
        self._once: OrderedDict[Caller, Mapping[str, object] | None] = OrderedDict()  # None: no answer yet
        self.life = Life(job, names, self.table, self.out, self.history, self.expected, on_free)
        self.life.owner = dict(owner)

    def reply(self, call: Caller, parameters: Mapping[str, object]) -> None:
        """Reply to a call."""
        self.answer(call, {"parameters": parameters})

    def refuse(self, call: Caller, refused: Refused) -> None:
        """Refuse a call."""
        self.answer(call, error_reply(refused))

    def answer(self, call: Caller, told: Mapping[str, object]) -> None:
        """Send the answer to a call, a reply or an error, and remember the answer for a call in `_once`."""
        if call in self._once:
            self._once[call] = told
        self.out.send(call[0], "reply", id=call[1], **told)

    def comes_again(self, call: Caller) -> bool:
        """Return whether a call to be carried out only once came before; then repeat the answer, if any."""
        if call not in self._once:
            self._once[call] = None
            while len(self._once) > _MOST_REMEMBERED:
                self._once.popitem(last=False)
            return False
        if (told := self._once[call]) is not None:
            self.out.send(call[0], "reply", id=call[1], **told)
        return True
