"""The output of a step's nodes, put in order for the client's streams. Runs in the client's agent."""

from collections.abc import Callable, Mapping
from typing import Any

from nodectl.cluster.agent.sinks import Sink

Answer = Callable[[Mapping[str, object]], None]
_TOLD_BY = 4  # reports per window


class Inlet:
    """A node's output stream.

    `answer` reports to the node the bytes written to `sink`, when they are worth a message; `window` is the node's.
    """

    __slots__ = ("_answer", "_asked", "_have", "_sink", "_told", "_window", "_written")

    def __init__(self, sink: Sink, answer: Answer, window: int) -> None:
        self._sink = sink
        self._answer = answer
        self._window = window
        self._have = 0
        self._written = 0
        self._told = 0
        self._asked = -1  # the bytes behind this place are requested already

    def take(self, header: Mapping[str, Any], body: bytes) -> None:
        """Handle a message of the node."""
        at = int(header["at"])
        if header.get("end") is not None and at != self._have:
            self._tell(again=True)
            return
        if at > self._have:
            if self._asked != self._have:
                self._tell(again=True)
            return
        if at + len(body) > self._have:
            fresh = body[self._have - at :]
            self._have += len(fresh)
            self._sink.write(fresh, self._wrote)
        if self._sink.broken:
            self._answer({"bytes": self._have, "have": self._have, "gone": True})
        elif header.get("end") is not None:
            self._tell()

    def _wrote(self, size: int) -> None:
        self._written += size
        if self._written - self._told >= self._window // _TOLD_BY and not self._sink.broken:
            self._tell()
        elif self._sink.broken:
            self._answer({"bytes": self._have, "have": self._have, "gone": True})

    def ask(self) -> None:
        """Ask for missing bytes again after a broken link."""
        self._tell(again=True)

    def _tell(self, *, again: bool = False) -> None:
        self._told = self._written
        told: dict[str, object] = {"bytes": self._written, "have": self._have}
        if again:
            self._asked = self._have
            told["again"] = True
        self._answer(told)
