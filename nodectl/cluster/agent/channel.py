"""The messages of a step between two agents, each delivered once and in order, even across broken links.

Each message has a number and is kept until the remote end has it. Without I/O.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

Header = Mapping[str, Any]
_TELL_BY = 16  # messages taken, before a confirmation of its own


class Channel:
    """An end of the channel.

    `send` sends a header to the remote end's `hear`; `take` gets the remote end's messages. `late`:
    a message may have to wait here before it is passed on; `took` then confirms it. A sender of many messages checks
    `kept` first.
    """

    __slots__ = ("_asked", "_heard", "_kept", "_late", "_number", "_send", "_take", "_told", "_took")

    def __init__(self, send: Callable[[Header], None], take: Callable[[Any], None], *, late: bool = False) -> None:
        self._send = send
        self._take = take
        self._late = late
        self._number = 0
        self._heard = self._took = self._told = 0
        self._asked = -1  # messages behind this number are requested already
        self._kept: deque[tuple[int, object]] = deque()  # messages that the remote end may not have taken

    @property
    def kept(self) -> int:
        """The number of messages without confirmation."""
        return len(self._kept)

    def say(self, what: object) -> None:
        """Send a message."""
        self._number += 1
        self._kept.append((self._number, what))
        self._pass(self._number, what)

    def _pass(self, number: int, what: object) -> None:
        self._told = self._took
        self._send({"n": number, "heard": self._took, "say": what})

    def hear(self, header: Header) -> None:
        """Handle a header from the remote end. `heard`: the number of messages taken there."""
        heard, number = int(header["heard"]), int(header.get("n", 0))
        while self._kept and self._kept[0][0] <= heard:
            self._kept.popleft()
        if header.get("again"):
            for kept, what in list(self._kept):
                self._pass(kept, what)
            if not self._kept:
                self._tell()
        if number == self._heard + 1:
            self._heard = number
            self._take(header["say"])
            if not self._late:
                self.took()
        elif number > self._heard != self._asked:
            self.ask()

    def took(self, *, last: bool = False) -> None:
        """Confirm the next message as passed on. The last message is confirmed at once."""
        self._took += 1
        if last or self._took - self._told >= _TELL_BY:
            self._tell()

    def _tell(self) -> None:
        self._told = self._took
        self._send({"heard": self._took})

    def ask(self) -> None:
        """Ask for missing messages again after a broken link; the remote end also repeats messages not yet taken."""
        self._told, self._asked = self._took, self._heard
        self._send({"heard": self._took, "again": True})
