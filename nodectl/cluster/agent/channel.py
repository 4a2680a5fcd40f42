"""What two agents say to each other of one step, each thing once and in its order, also where a link breaks on the way:
it is numbered, and kept until the other one has it. Without I/O.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

Header = Mapping[str, Any]
_TELL_BY = 16  # things heard, without one to say


class Channel:
    """`send` sends a header to the other end, whose `hear` is given it; `take` gets what that end says."""

    __slots__ = ("_heard", "_kept", "_number", "_send", "_take", "_told")

    def __init__(self, send: Callable[[Header], None], take: Callable[[Any], None]) -> None:
        self._send = send
        self._take = take
        self._number = 0
        self._heard = self._told = 0
        self._kept: deque[tuple[int, object]] = deque()  # what the other one may not have

    @property
    def kept(self) -> int:
        """How many things the other one may not have."""
        return len(self._kept)

    def say(self, what: object) -> None:
        """Says something."""
        self._number += 1
        self._kept.append((self._number, what))
        self._pass(self._number, what)

    def _pass(self, number: int, what: object) -> None:
        self._told = self._heard
        self._send({"n": number, "heard": self._heard, "say": what})

    def hear(self, header: Header) -> None:
        """What the other end has sent."""
        heard, number = int(header["heard"]), int(header.get("n", 0))
        while self._kept and self._kept[0][0] <= heard:
            self._kept.popleft()
        if header.get("again"):
            for kept, what in list(self._kept):
                self._pass(kept, what)
            if not self._kept:
                self._send({"heard": self._heard})
        if number == self._heard + 1:
            self._heard = number
            self._take(header["say"])
            if self._heard - self._told >= _TELL_BY:
                self._told = self._heard
                self._send({"heard": self._heard})
        elif number > self._heard:
            self.ask()

    def ask(self) -> None:
        """A link was broken: what is missing is to be said again."""
        self._told = self._heard
        self._send({"heard": self._heard, "again": True})
