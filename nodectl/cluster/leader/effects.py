"""The effects requested by the leader's core, in order, as values.

Entries reach the journal before any message is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Header = dict[str, Any]


class Send(NamedTuple):
    """A message to a node."""

    to: int
    kind: str
    header: Header


class SendEach(NamedTuple):
    """A message along the tree: `common` for all nodes, and by rank the content for each node."""

    kind: str
    common: Header
    each: Mapping[int, object]


class Keep(NamedTuple):
    """An entry of the journal; `durable`: on the disk before any message is sent."""

    entry: Header
    durable: bool = False


Effect = Send | SendEach | Keep


class Out:
    """The effects requested since the last `take`."""

    __slots__ = ("effects",)

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def send(self, to: int, kind: str, **header: object) -> None:
        """Add a message."""
        self.effects.append(Send(to, kind, header))

    def keep(self, entry: Header, *, durable: bool = False) -> None:
        """Add an entry of the journal."""
        self.effects.append(Keep(entry, durable))

    def take(self) -> list[Effect]:
        """Return all effects and start an empty list."""
        effects, self.effects = self.effects, []
        return effects
