"""What the leader's core wants done, in this order: values. What is kept is in the journal before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Header = dict[str, Any]


class Send(NamedTuple):
    """A message to one node."""

    to: int
    kind: str
    header: Header


class SendEach(NamedTuple):
    """A message along the tree: `common` to all, and by rank what is a node's own."""

    kind: str
    common: Header
    each: Mapping[int, object]


class Keep(NamedTuple):
    """An entry of the journal; `durable`: on the disk before anybody is told."""

    entry: Header
    durable: bool = False


Effect = Send | SendEach | Keep


class Out:
    """What is to be done since it was taken last."""

    __slots__ = ("effects",)

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def send(self, to: int, kind: str, **header: object) -> None:
        """A message."""
        self.effects.append(Send(to, kind, header))

    def keep(self, entry: Header, *, durable: bool = False) -> None:
        """An entry."""
        self.effects.append(Keep(entry, durable))

    def take(self) -> list[Effect]:
        """All of it; nothing is left."""
        effects, self.effects = self.effects, []
        return effects
